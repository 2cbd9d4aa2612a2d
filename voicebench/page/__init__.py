"""The status page: a Flask application on gevent's server, in the master's main thread.

It reads what the core has made and passes on what people want. Nothing in it is waited for by anything that measures.
"""
