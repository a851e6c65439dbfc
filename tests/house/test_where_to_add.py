"""What an addition costs: each is made in a copy of the house, works there, and touches few files, all named in its row."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from .source import PRODUCT, ROOT

COPIED = (*PRODUCT, "devtools", "docs", "static", "templates", "tests")
ROW = re.compile(r"^\| (?P<what>[^|]+) \| (?P<where>.+) \|$", re.MULTILINE)


@dataclass(frozen=True)
class Addition:
    """Texts inserted before others in files, new files, and commands; what it does is shown by tests that run in the copy."""

    what: str
    most_source_files: int
    tests: Sequence[str]
    inserted: Sequence[tuple[str, str, str]]
    new: Mapping[str, str] = field(default_factory=dict)
    commands: Sequence[Sequence[str]] = ()


FIELD = Addition(
    what="a field of a job",
    most_source_files=5,
    tests=["tests/house/additions/field.py", "tests/engine/test_job_fields.py"],
    inserted=[
        (
            "federation/engine/intake/spec.py",
            "    strategy: str = ",
            "    warmup_seconds: int | None = None\n",
        ),
        (
            "federation/engine/intake/job_fields.py",
            '    JobField("strategy", ',
            '    JobField("warmup_seconds", Whole(1, 3600), "Before useful work.", WARMUP, steers_placement=True),\n',
        ),
        (
            "federation/engine/intake/job_fields.py",
            "JOB_FIELDS: ",
            'WARMUP = Control(Section.TIME, "Warm-up, minutes")\n',
        ),
        (
            "placement/values/model.py",
            "\n\n@dataclass(frozen=True, slots=True)\nclass PriceChange:",
            "    warmup_seconds: int | None = None\n",
        ),
        (
            "docs/reference/job-spec.md",
            "| `priority_class` |",
            "| `warmup_seconds` | 1 to 3,600: how long the job runs before it does useful work | `null` |\n",
        ),
    ],
)
STRATEGY = Addition(
    what="a placement strategy",
    most_source_files=3,
    tests=[
        "tests/house/additions/strategy.py",
        "tests/engine/test_strategies.py::test_the_page_has_the_weights_of_every_strategy",
    ],
    inserted=[
        ("placement/values/strategies.py", "}\nSTRATEGY_NAMES", '    "fullest": Weights(price=0.1, free=0.2),\n'),
        (
            "docs/reference/strategies.md",
            "| `cheapest` |",
            "| `fullest` | 0.1 | 0.2 | | | | The fuller place, even if it is a little dearer |\n",
        ),
        ("docs/reference/job-spec.md", " | `balanced` |\n", ", `fullest`"),
    ],
    commands=[["manage.py", "makemigrations", "federation", "--name", "fullest"]],
)
DRIVER = Addition(
    what="a kind of cluster",
    most_source_files=2,
    tests=["tests/house/additions/driver.py"],
    inserted=[
        ("clusters/drivers/registry.py", " kubernetes, simulated\n", " echo,"),
        (
            "clusters/drivers/registry.py",
            "}\n\n\ndef kind_of",
            '    "echo": Kind(echo.driver_at, has_credential=False),\n',
        ),
    ],
    new={
        "clusters/drivers/echo/__init__.py": (
            "from django.conf import settings\n\n"
            "from clusters.drivers.simulated import SimulatedDriver\n\n\n"
            "def driver_at(address):\n"
            '    return SimulatedDriver(settings.HOME / "echo.sqlite3", settings.INSTALL_ID)\n'
        )
    },
)
ADDITIONS = (FIELD, STRATEGY, DRIVER)


class House:
    """A copy of the house."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("manage.py", "pyproject.toml"):
            shutil.copy(ROOT / name, folder)
        for name in COPIED:
            shutil.copytree(ROOT / name, folder / name)  # with the bytecode: to compile all again takes long

    def add(self, addition: Addition) -> set[str]:
        """The files that this touches."""
        before = self.files()
        for path, place, text in addition.inserted:
            content = (self.folder / path).read_text()
            assert content.count(place) == 1, f"{path} has no such place, or several: {place!r}"
            (self.folder / path).write_text(content.replace(place, text + place))
        for path, text in addition.new.items():
            (self.folder / path).parent.mkdir()
            (self.folder / path).write_text(text)
        for command in addition.commands:
            self.run(*command)
        return {path for path, content in self.files().items() if before.get(path) != content}

    def files(self) -> dict[str, bytes]:
        found = [path for name in COPIED for path in (self.folder / name).rglob("*") if path.is_file()]
        return {
            str(path.relative_to(self.folder)): path.read_bytes() for path in found if "__pycache__" not in path.parts
        }

    def run(self, *command: str) -> str:
        """Its output. The tests of the copy make a database of their own beside ours."""
        database = urlsplit(os.environ["DATABASE_URL"])._replace(path="/added").geturl()
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "CI"))}
        done = subprocess.run(
            [sys.executable, "-W", "ignore:Got an error checking a consistent migration history", *command],
            cwd=self.folder,
            env={**kept, "DATABASE_URL": database},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    return House(tmp_path_factory.mktemp("house"))


@pytest.fixture(scope="module")
def touched(house):
    """The files that each addition touches, made one after another in one copy."""
    return {addition.what: house.add(addition) for addition in ADDITIONS}


def row(what: str) -> str:
    """Where ARCHITECTURE.md says to add it."""
    table = (ROOT / "ARCHITECTURE.md").read_text().split("## Where do I add")[1]
    return {found["what"]: found["where"] for found in ROW.finditer(table)}[what]


def is_named(path: str, where: str) -> bool:
    """Whether a row names the file, or the folder in which it is new."""
    is_new = not (ROOT / path).exists()
    return f"`{path}`" in where or (is_new and any(f"`{above}/`" in where for above in Path(path).parents))


@pytest.mark.parametrize("addition", ADDITIONS, ids=lambda addition: addition.what)
def test_an_addition_touches_few_files_which_its_row_names(touched, addition):
    files = touched[addition.what]
    sources = {path for path in files if not path.startswith(("docs/", "tests/"))}
    assert len(sources) <= addition.most_source_files, sources
    assert [path for path in sorted(files) if not is_named(path, row(addition.what))] == []


@pytest.mark.parametrize("what", [addition.what for addition in ADDITIONS])
def test_a_row_names_files_that_exist(what):
    named = re.findall(r"`([a-z_-]+/[a-zA-Z_./-]+)`", row(what))
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.usefixtures("touched")
def test_each_addition_works(house):
    house.run("-m", "pytest", "-q", "-p", "no:cacheprovider", *(path for each in ADDITIONS for path in each.tests))
