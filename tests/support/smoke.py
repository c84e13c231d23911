"""What a newcomer does first: the commands and the Python code of the README, in the environment that runs this.

    python tests/support/smoke.py README.md

Fails with the first thing that fails.
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path


def main(page):
    """Run every block of the page; the names of files that are missing afterwards."""
    blocks = re.findall(r"^```(console|python)\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    with tempfile.TemporaryDirectory() as folder:
        for language, code in blocks:
            commands = [shlex.split(line, comments=True) for line in code.splitlines()] if language == "console" else []
            programs = [[sys.executable, "-m", *command] for command in commands] or [[sys.executable, "-c", code]]
            for program in programs:
                subprocess.run(
                    program, cwd=folder, check=True, stdout=subprocess.DEVNULL, env=os.environ | {"PYTHONPATH": ""}
                )
        written = ("demo/report.html", "cal.safetensors", "report.html")
        return [name for name in written if not (Path(folder) / name).is_file()]


if __name__ == "__main__":
    missing = main(Path(sys.argv[1]))
    sys.exit(f"not written: {', '.join(missing)}" if missing else 0)
