import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from devtools.prose import program
from devtools.prose.__main__ import findings, main
from devtools.wheels import CannotBring

pytestmark = pytest.mark.timeout(1200)  # the first one may build vale
RULES = Path(program.__file__).with_name("styles") / "Switchyard" / "Words.yml"
BAD = (
    "it tells", "nobody", "so many", "to be had", "whoever", "gives way", "looks at", "lets users in", "goes by", "turns up",
    "worn out", "anew", "lately", "by then", "by itself", "it is over.", "comes back", "every try", "an instant", "is due",
    "two machines", "the books", "at once", "in its words", "has it to itself", "of its own.",
)  # fmt: skip
"""A text for each rule, in the order of the rules."""
PLACES = {
    "README.md": ["# A title", "", "A sentence, {}."],
    "docs/howto/tables.md": ["| a | b |", "|---|---|", "| c | {} |"],
    "docs/reference/lists.md": ["", "- one", "- {}"],
    "templates/element.html": ["{{% block content %}}", "<p>", "Some {{{{ page.text }}}} {}</p>"],
    "templates/attribute.html": ["", "", '<button aria-label="Close {}">x</button>'],
    "templates/argument.html": ["", "", '{{% field page.form "name" "Name" hint="A text, {}" %}}'],
    "room/docstring.py": ["def f():", '    """Returns it.', "    It is here, {}.", '    """'],
    "room/comment.py": ["import os", "", "x = 1  # a comment, {}"],
    "room/models.py": ["", "", 'at = models.DateTimeField(null=True, help_text="When, {}.")'],
    "room/management/commands/do.py": ["class Command:", "", '    help = "Does {}."'],
    "room/errors.py": ["", "", 'raise Invalid(f"{{name}} is refused: {}")'],
    "room/reasons.py": ["def reason():", "    return Reason(", '        "code", "It waits: {}")'],
}
"""A file for each kind of place; the third line has the text."""


@pytest.fixture(scope="module")
def vale():
    return program.locate()


@pytest.fixture
def folder(tmp_path):
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    return tmp_path


def write(folder, name, lines):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("name", PLACES)
def test_a_bad_word_is_found_in_every_kind_of_place(vale, folder, name):
    write(folder, name, [line.format("nobody knows") for line in PLACES[name]])
    (found,) = findings(vale, folder)
    assert found.startswith(f"{name}:3: ")
    assert "nobody" in found


def test_every_rule_finds_its_words(vale, folder):
    rules = yaml.safe_load(RULES.read_text())["swap"]
    assert len(rules) == len(BAD)
    for text, (words, advice) in zip(BAD, rules.items(), strict=True):
        assert re.search(words, text), text
        write(folder, "a.md", [f"We say {text}"])
        (found,) = findings(vale, folder)
        assert advice in found


def test_a_phrase_is_found_across_a_line_break(vale, folder):
    write(folder, "a.py", ['"""There are so', 'many of them."""', "# and so", "# many others"])
    assert [found.split(" ")[0] for found in findings(vale, folder)] == ["a.py:1:", "a.py:3:"]


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("code.md", ["Set `nobody`, and run", "", "```sh", "su nobody", "```"]),
        ("off.md", ["<!-- vale off -->", "", "nobody", "", "<!-- vale on -->"]),
        (
            "hidden.html",
            ["<pre>su nobody</pre>", "<p>{% if told %}{{ nobody }}{% endif %}</p>", '<p class="nobody">x</p>'],
        ),
        ("names.py", ["told = nobody(told)", 'user = "nobody"', "# the user `nobody`"]),
        ("sense.md", ["The state machine, the virtual machine and machine-readable text; half as many; it is over 5."]),
        ("static/vendor/README.md", ["nobody"]),
    ],
)
def test_code_names_and_other_senses_are_no_fault(vale, folder, name, lines):
    write(folder, name, lines)
    assert not list(findings(vale, folder))


def test_a_file_that_git_ignores_is_not_read(vale, folder):
    write(folder, ".gitignore", ["build/"])
    write(folder, "build/a.md", ["nobody"])
    assert not list(findings(vale, folder))


def test_the_exit_status_says_whether_a_word_was_found(vale, folder, capsys):
    write(folder, "a.md", ["every user"])
    assert main(folder) == 0
    write(folder, "a.md", ["nobody"])
    assert main(folder) == 1
    assert "a.md:1: " in capsys.readouterr().out


@pytest.fixture
def bare(tmp_path, monkeypatch):
    """A user's cache without vale, and a stand-in for Go that finds the module in `bare/module`."""
    monkeypatch.delenv("VALE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    parsers = tmp_path / "module" / "internal" / "lint" / "code"
    parsers.mkdir(parents=True)
    (parsers / "parser.go").touch(mode=0o444)
    parsers.chmod(0o555)
    stand_in(tmp_path, program.SUM, "ls internal/lint/code > {0}/built; echo x >> {0}/calls")
    return tmp_path


def stand_in(folder, total, build):
    answer = json.dumps({"Dir": str(folder / "module"), "Sum": total})
    go = folder / "go"
    go.write_text(
        f"#!/bin/sh\nif [ $1 = mod ]; then echo '{answer}'; exit; fi\n{build.format(folder)}\n"
        'while [ "$1" != -o ]; do shift; done; echo "#!/bin/sh" > "$2"; chmod +x "$2"\n'
    )
    go.chmod(0o755)


def test_vale_is_built_once_without_its_parsers(bare):
    path = program.locate()
    assert os.access(path, os.X_OK)
    assert program.locate() == path
    assert (bare / "calls").read_text() == "x\n"
    assert (bare / "built").read_text() == "no_parsers.go\n"
    assert [file.name for file in path.parent.iterdir()] == ["vale"]


def test_a_module_with_another_sum_is_not_built(bare):
    stand_in(bare, "h1:another", "touch {0}/calls")
    with pytest.raises(CannotBring, match="h1:another"):
        program.locate()
    assert not (bare / "calls").exists()


def test_a_failed_build_says_why_and_is_repeated_later(bare, capsys):
    stand_in(bare, program.SUM, "echo out of space >&2; exit 1")
    assert main(bare) == 1
    said = capsys.readouterr().err
    assert "out of space" in said
    assert "set VALE" in said
    stand_in(bare, program.SUM, ":")
    assert program.locate().exists()


def test_a_program_named_by_the_environment_is_used_or_refused(bare, monkeypatch):
    monkeypatch.setenv("VALE", str(bare / "go"))
    assert program.locate() == bare / "go"
    monkeypatch.setenv("VALE", str(bare / "none"))
    with pytest.raises(CannotBring, match="not a program"):
        program.locate()
