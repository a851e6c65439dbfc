"""The programs of Jobs that copy datasets, as they run in their containers: from one folder to another, and from a bucket to a folder.

Both report in the same lines. Nothing that a user writes becomes part of a program: a source, a target and a digest are arguments.
An access key is only in variables, which rclone reads.
"""

from federation.engine.staging import LINK_IN_THE_WAY, NOT_WHOLE, NOTHING_THERE, WRONG_DIGEST

REMOTE = "source"
"""How rclone names the object store: variables with this name describe it."""
_ARGUMENTS = """
set -eu
from= to= want=
while [ $# -gt 0 ]; do
  case "$1" in
    --from) from=$2 ;;
    --to) to=$2 ;;
    --sha256) want=$2 ;;
    *) echo "unknown argument" >&2; exit 64 ;;
  esac
  shift 2
done
size() { find "$1" -type f -exec stat -c %s {} + | awk '{n += $1} END {printf "%.0f", n}'; }
"""
_PROGRESS = f"""
if [ "$total" = 0 ]; then echo "nothing to copy" >&2; exit {NOTHING_THERE}; fi
echo "switchyard-stage 0 $total"
( while sleep 5 >/dev/null 2>&1; do done=`size "$to" 2>/dev/null`; echo "switchyard-stage $done $total"; done ) &
watching=$!
trap 'kill $watching 2>/dev/null || :' EXIT
"""
_NO_LINKS = f"""
# A link of someone else at the target would lead the copy, and its digest, out of it.
plain='for f; do while [ "$f" != . ]; do if [ -L "$f" ]; then exit 1; fi; f=${{f%/*}}; done; done'
refuse_links() {{
  if names 3>/dev/null | {{ cd "$to" && xargs -0 sh -c "$plain" links; }}; then return 0; fi
  echo "a link is in the way" >&2
  exit {LINK_IN_THE_WAY}
}}
"""
_DIGEST = f"""
refuse_links
sums() {{ cd "$to" && xargs -0 sha256sum && echo whole >&3; }}
said=`{{ names | sums | sha256sum; }} 3>&1`
case "$said" in whole*) ;; *) echo "the copy is not whole" >&2; exit {NOT_WHOLE} ;; esac
sum=${{said#whole?}}
sum=${{sum%% *}}
if [ -n "$want" ] && [ "$sum" != "$want" ]; then echo "sha256 is $sum" >&2; exit {WRONG_DIGEST}; fi
echo "switchyard-staged $total $sum"
"""
_KNOWN = "AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|NoSuchBucket|no such host|connection refused|i/o timeout|x509"
_LIST = f"""
list=`mktemp` errors=`mktemp`
store() {{
  rclone -q --config /dev/null "$@" 2>"$errors" && return 0
  code=$?
  if [ $code = 3 ]; then exit {NOTHING_THERE}; fi
  known=`grep -oE '{_KNOWN}' "$errors" | tail -n 1`
  echo "the object store: ${{known:-the copy failed}}" >&2
  exit 1
}}
store lsf -R --files-only --format sp --separator / "$from" >"$list"
# rclone shows dots as wide ones where they would lead elsewhere
if sed 's,^[0-9]*/,,' "$list" | grep -qE '(^|/)((\\.|\uff0e){{1,2}})?(/|$)'; then
  echo "the object store: a key cannot be the name of a file" >&2
  exit 1
fi
total=`awk -F/ '{{n += $1}} END {{printf "%.0f", n}}' "$list"`
"""
_NAMES_OF_FOLDER = """
names() { { cd "$from" && find . -type f -print0 || echo broken >&3; } | { LC_ALL=C sort -z || echo broken >&3; } }
"""
_NAMES_OF_LIST = """
names() { { sed 's,^[0-9]*/,./,' "$list" | tr '\\n' '\\0' || echo broken >&3; } | { LC_ALL=C sort -z || echo broken >&3; } }
"""


def _joined(*parts: str) -> str:
    return "\n".join(part.strip("\n") for part in parts)


FROM_FOLDER = _joined(
    _ARGUMENTS,
    'total=`size "$from"`',
    _PROGRESS,
    _NAMES_OF_FOLDER,
    _NO_LINKS,
    "refuse_links",
    'cp -RP "$from/." "$to/"',
    _DIGEST,
)
"""For any image with a POSIX shell and the usual commands, such as busybox."""
FROM_BUCKET = _joined(
    _ARGUMENTS, _LIST, _PROGRESS, _NAMES_OF_LIST, _NO_LINKS, "refuse_links", 'store copy "$from" "$to"', _DIGEST
)
"""For an image that also has rclone. What the store answers is reported only by words that are known: the rest may be anything."""
