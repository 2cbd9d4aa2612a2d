import subprocess
import sys

import pytest


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["--version"], ["score", "--help"]])
def test_help_needs_none_of_the_heavy_packages(arguments):
    code = (
        "import sys; from voicebench.cli import main; main(sys.argv[1:]);"
        "heavy = {'numpy', 'gevent', 'flask', 'pydantic', 'rich', 'websockets', 'soundfile'} & set(sys.modules);"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "voicebench" in done.stdout
