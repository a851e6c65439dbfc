"""Management commands, each in a fork of one process that has imported Django and the gateway already.

To start Python and import both takes two seconds of a core, which is most of what a command costs. The process that forks is
`python -m devtools.commands`: it reads one request per line and prints one answer per line, in JSON. It ends with the process
that started it, and a running command ends with it.
"""

import gc
import json
import os
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, NoReturn

import manage
from config.home import take_settings_of_home

PROJECT = Path(__file__).resolve().parent.parent
END_SECONDS = 10


@dataclass(frozen=True, slots=True)
class Done:
    """A command that has ended. The code is negative if a signal ended it."""

    code: int
    output: str
    errors: str


class Commands:
    """The process that runs the commands of one environment."""

    def __init__(self, environment: Mapping[str, str], log: Path) -> None:
        """Starts it. Call it from the main thread: the process ends with the thread that started it."""
        self._environment = _own(environment)
        self._one_at_a_time = threading.Lock()
        with os.fdopen(os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab") as sink:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", sys.executable, "-m", "devtools.commands"],
                cwd=PROJECT,
                env=dict(environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=sink,
                text=True,
                process_group=0,  # Ctrl-C reaches only us
            )
        self._log = log

    def are_of(self, environment: Mapping[str, str]) -> bool:
        """Whether they run in this environment, and can run at all."""
        return self._process.poll() is None and self._environment == _own(environment)

    def run(self, *arguments: str) -> Done:
        """What `manage.py` with these arguments came to."""
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None
        assert answers is not None
        with self._one_at_a_time:
            try:
                requests.write(f"{json.dumps(arguments)}\n")
                requests.flush()
                answer = answers.readline()
            except BaseException:
                self._process.kill()  # its next answer would be the one to this request
                raise
        if not answer:
            raise RuntimeError(f"the process that runs commands ended with {self._process.wait()}: {self._log}")
        return Done(**json.loads(answer))

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.communicate(timeout=END_SECONDS)


def _own(environment: Mapping[str, str]) -> Mapping[str, str]:
    """Without what pytest changes from test to test."""
    return {name: value for name, value in environment.items() if not name.startswith("PYTEST_")}


def _run(arguments: Sequence[str]) -> Done:
    with TemporaryFile() as output, TemporaryFile() as errors:
        child = os.fork()
        if not child:
            _become(arguments, output, errors)
        _, status = os.waitpid(child, 0)
        return Done(os.waitstatus_to_exitcode(status), _written(output), _written(errors))


def _written(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def _become(arguments: Sequence[str], output: IO[bytes], errors: IO[bytes]) -> NoReturn:
    """Runs the command in this process, a fork, and ends it."""
    from foundation.processes import die_with_parent  # noqa: PLC0415 - Django's settings come first

    code: Any = 1
    try:
        die_with_parent()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output.fileno(), 1)
        os.dup2(errors.fileno(), 2)
        sys.argv = ["manage.py", *arguments]
        manage.main()
        code = 0
    except SystemExit as end:
        code = end.code or 0
        if isinstance(code, str):  # as the interpreter does
            print(code, file=sys.stderr)
    except BaseException:  # noqa: BLE001 - the end of a process
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)


def main() -> None:
    """Runs requested commands until there is no caller."""
    take_settings_of_home(os.environ, PROJECT)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    import django  # noqa: PLC0415 - its settings are named now

    django.setup()
    for request in sys.stdin:
        arguments = json.loads(request)
        _import(arguments)
        print(json.dumps(asdict(_run(arguments))), flush=True)


def _import(arguments: Sequence[str]) -> None:
    """Imports the command with all that it needs, once for all its forks. Most commands need no views, which cost the most."""
    from django.core.management import get_commands  # noqa: PLC0415 - Django's settings come first

    gc.disable()
    with suppress(Exception):  # the fork says what is wrong with it
        import_module(f"{get_commands()[arguments[0]]}.management.commands.{arguments[0]}")
    gc.freeze()  # else each fork would copy what its collector walks
    gc.enable()


if __name__ == "__main__":
    main()
