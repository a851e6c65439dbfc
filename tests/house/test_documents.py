"""Every setting and every error code is documented, and what is documented exists."""

import ast
import re
from functools import cache

from .source import PRODUCT, ROOT, files, name, nodes

SETTINGS_PAGE = ROOT / "docs/reference/settings.md"
ERRORS_PAGE = ROOT / "docs/reference/errors.md"
EXAMPLE = ROOT / ".env.example"
ROW = re.compile(r"^\| `([A-Za-z_0-9]+)` \|", re.MULTILINE)
CODE = re.compile(r"[a-z][a-z0-9_]*")
FIELD_MAKERS = {"FieldError": 1, "field": 1, "ErrorDetail": 1, "ValidationError": 1, "fault": 1}
"""Calls that make a field's error, and which of their arguments is its code."""


@cache
def documented(page, heading=""):
    text = page.read_text()
    part = text.split(f"\n## {heading}\n")[1].split("\n## ")[0] if heading else text
    return set(ROW.findall(part))


@cache
def settings_read():
    found = set()
    for path in files(("config",)):
        for call in nodes(path, ast.Call):
            if (
                isinstance(call.func, ast.Attribute)
                and isinstance(call.func.value, ast.Name)
                and call.func.value.id == "env"
            ):
                found.add(ast.literal_eval(call.args[0]))
    return found


@cache
def problem_classes():
    """Names of the classes that are Problems, by their bases, over all rooms."""
    bases = {
        node.name: {getattr(base, "id", getattr(base, "attr", "")) for base in node.bases}
        for path in files()
        for node in nodes(path, ast.ClassDef)
    }
    known = {"Problem"}
    while more := {name for name, above in bases.items() if above & known} - known:
        known |= more
    return known


def literal(node):
    """The texts that an expression can be, as far as it is written out."""
    if isinstance(node, ast.Constant):
        return {node.value} if isinstance(node.value, str) and node.value else set()
    if isinstance(node, ast.IfExp):
        return literal(node.body) | literal(node.orelse)
    return set()


@cache
def problem_codes():
    """Code → where, of every Problem raised or declared."""
    problems, found = problem_classes(), {}
    for path in files():
        statements = [line for node in nodes(path, ast.ClassDef) if node.name in problems for line in node.body]
        raised = [call for call in nodes(path, ast.Call) if called(call) in problems]
        keywords = [keyword.value for call in raised for keyword in call.keywords if keyword.arg == "code"]
        for codes in (*map(declared_codes, statements), *map(literal, keywords)):
            found |= {code: name(path) for code in codes}
    return found


def declared_codes(statement):
    """Codes in `code = "x"` and `status, code, title = 409, "x", "X"`."""
    if not isinstance(statement, ast.Assign):
        return set()
    target, value = statement.targets[0], statement.value
    if isinstance(target, ast.Name) and target.id == "code":
        return literal(value)
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        names = [getattr(element, "id", "") for element in target.elts]
        return literal(value.elts[names.index("code")]) if "code" in names else set()
    return set()


def called(call):
    return getattr(call.func, "id", getattr(call.func, "attr", ""))


@cache
def field_codes():
    found = {}
    for path in files():
        for call in nodes(path, ast.Call):
            position = FIELD_MAKERS.get(called(call))
            if position is None:
                continue
            given = [
                *call.args[position : position + 1],
                *(keyword.value for keyword in call.keywords if keyword.arg == "code"),
            ]
            for code in [code for node in given for code in literal(node) if CODE.fullmatch(code)]:
                found.setdefault(code, name(path))
        for function in nodes(path, ast.FunctionDef):
            if function.name.endswith("_fault"):
                for code in returned_codes(function):
                    found.setdefault(code, name(path))
    return found


def returned_codes(function):
    """Codes in `return "code", "detail"`."""
    returned = [node.value for node in ast.walk(function) if isinstance(node, ast.Return)]
    pairs = [node for value in returned for node in ast.walk(value or ast.Pass()) if isinstance(node, ast.Tuple)]
    return {code for pair in pairs if len(pair.elts) == 2 for code in literal(pair.elts[0]) if CODE.fullmatch(code)}


def test_every_setting_is_documented_and_in_the_example():
    missing = settings_read() - documented(SETTINGS_PAGE)
    assert not missing, f"add a row to {name(SETTINGS_PAGE)}: {missing}"
    example = set(re.findall(r"^#? ?([A-Z_]+)=", EXAMPLE.read_text(), re.MULTILINE))
    missing = settings_read() - example
    assert not missing, f"add a line to {name(EXAMPLE)}: {missing}"


def test_every_documented_setting_is_read_somewhere():
    sources = [*files((*PRODUCT, "devtools")), ROOT / "Makefile"]
    text = "\n".join(path.read_text() for path in sources if path.exists())
    stale = {setting for setting in documented(SETTINGS_PAGE) if setting not in text}
    assert not stale, f"nothing reads these; remove them from {name(SETTINGS_PAGE)}: {stale}"


def test_every_problem_code_is_documented():
    missing = {
        code: where for code, where in problem_codes().items() if code not in documented(ERRORS_PAGE, "Problems")
    }
    assert not missing, f"add a row under Problems in {name(ERRORS_PAGE)}: {missing}"


def test_every_documented_problem_code_is_used():
    stale = documented(ERRORS_PAGE, "Problems") - set(problem_codes())
    assert not stale, f"nothing raises these; codes are never reworded, so say why or remove them: {stale}"


def test_every_field_code_is_documented():
    missing = {code: where for code, where in field_codes().items() if code not in documented(ERRORS_PAGE, "Fields")}
    assert not missing, f"add a row under Fields in {name(ERRORS_PAGE)}: {missing}"


def test_the_collector_sees_what_there_is():
    assert {"not_found", "tenant_not_empty", "idempotency_key_reused", "csrf_failed", "busy"} <= set(problem_codes())
    assert {"unknown_filter", "unknown_field", "in_the_past"} <= set(field_codes())
    assert {"DATABASE_URL", "SWITCHYARD_KEY_RING"} <= settings_read()


CYCLE_PAGE = ROOT / "docs/explanation/how-a-cycle-reads.md"
CYCLE = ROOT / "placement/cycle/cycle.py"
NUMBERED = re.compile(r"^(?:### | +# )(\d+\. .+)$", re.MULTILINE)


def test_a_cycle_reads_like_its_page():
    page, code = CYCLE_PAGE.read_text(), CYCLE.read_text()
    sections = NUMBERED.findall(page.split("\n## For each job")[1].split("\n## ")[0])
    assert NUMBERED.findall(code) == sections, f"give the steps of consider() the titles in {name(CYCLE_PAGE)}"
    assert len(sections) > 1


def test_every_module_that_the_page_of_the_cycle_names_exists():
    named = re.findall(r"`([a-z_]+/[a-z_/]+\.py)`", CYCLE_PAGE.read_text())
    assert {path for path in named if not (ROOT / path).exists()} == set()
    assert len(named) > 20


def test_no_document_promises_row_level_security():
    decided = ROOT / "docs" / "adr" / "0014-no-row-level-security.md"
    texts = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    found = [
        name(path)
        for path in texts
        if re.search(r"row.level|\bRLS\b", path.read_text(), re.IGNORECASE) and path != decided
    ]
    assert not found, f"{name(decided)} says what holds instead: {found}"


LINK = re.compile(r"\]\(([^)\s]+)\)")


def headings(page):
    """The anchors of a page's headings, as the forges make them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.replace("`", "").lower()).strip().replace(" ", "-") for title in titles}


def broken_links(page):
    for target in LINK.findall(page.read_text()):
        path, _, anchor = target.partition("#")
        if not path.startswith(("http:", "https:", "mailto:")):
            there = (page.parent / path).resolve() if path else page
            if not there.exists() or (anchor and there.suffix == ".md" and anchor not in headings(there)):
                yield f"{page.relative_to(ROOT)}: {target}"


def test_every_link_between_documents_leads_somewhere():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    assert len(pages) > 40
    assert not [link for page in pages for link in broken_links(page)]
