"""What master and workers say to each other: typed messages, their bytes, and the times after which silence means
something. Values only: the sockets are in `master/link.py` and `worker/link.py`.
"""
