"""Words in a form for comparison: split at case and punctuation, without filler, stemmed, with synonyms."""

from __future__ import annotations

import re
from functools import lru_cache

# Characters of a text whose stems are cached: a longer one is a document, which is used once.
MAX_CACHED_TEXT_CHARS = 1_000
# Texts whose stems are cached: the names and descriptions of a large catalogue of tools.
MAX_CACHED_TEXTS = 16_384

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_a-zA-Z]+")
_DOUBLED = re.compile(r"([bdgklmnprt])\1$")
_SHORTEST_STEM = 3
_ONE_WORD = {
    "check out": "checkout",
    "look up": "search",
    "look for": "search",
    "time zone": "timezone",
    "set up": "create",
}
_TWO_WORDS = re.compile("|".join(rf"\b{words}\b" for words in _ONE_WORD), re.IGNORECASE)


def word_set(text: str) -> frozenset[str]:
    """Return the words of a text as a set."""
    return frozenset(text.split())


def stem_set(text: str) -> frozenset[str]:
    """Return the stems of the words of a text as a set."""
    return frozenset(map(stem, text.split()))


_FILLER = word_set(
    """a about after all also am an and any are as at be been but by can could did do does for from had has have her
    him his how i if in into is it its just let like may me might my need of off on onto or our out over please shall
    she should so some such than that the their them then there these they this those to too tool tools up us use used
    using very via want was we were what when where which while who why will with would you your he hello hi hey
    thank thanks currently one give given tell help allow optional optionally specific based existing"""
)

_MEANINGS = """
folder: directory dir
dir: directory
ls: list directory
cat: read file
mkdir: create directory
rm: delete remove
mv: move
cp: copy
grep: search
show: list read get
display: list read get
view: read list
print: read echo
open: read
see: read list
look: search find
contents: read list content
contain: read content
inside: list content
list: listing
enumerate: list
find: search
locate: search
search: find query
query: search
recall: search read
know: read graph
save: write
store: write create add
put: write
write: create save
make: create
new: create
create: add new make
add: create sum
remember: create entity observation add
forget: delete
remove: delete
erase: delete
drop: delete
delete: remove
rename: move
transfer: move
relocate: move
copy: duplicate
plus: sum add
sum: add total
total: sum
addition: sum add
minus: subtract difference
times: multiply product
product: multiply
calculate: sum compute
compute: sum calculate
clock: time
hour: time
oclock: time
now: current time
zone: timezone
convert: translate
translate: convert
change: edit diff convert
changes: diff
modify: edit
replace: edit
update: edit
compare: diff difference
differ: diff
difference: diff
history: log
log: history
logs: logging
commits: log commit
undo: reset
unstage: reset staged
stage: add staging
switch: checkout
checkout: switch
branch: branches
picture: image
photo: image
logo: image
image: picture media
sound: audio media
audio: media
environment: env variables
env: environment
variable: env environment
repeat: echo
say: echo message
echo: repeat
web: url fetch internet
website: url fetch internet
webpage: url fetch internet
page: url fetch
site: url fetch
url: fetch
link: url relation
download: fetch get
browse: fetch
load: fetch read
get: fetch read return
retrieve: get read
return: get
info: information metadata
information: info metadata
details: info metadata
metadata: info
size: info sizes
big: size info
large: size
old: created modified info
modified: info
permission: info allowed
hierarchy: tree
structure: tree
recursive: tree recursively
recursively: tree
compress: gzip
zip: gzip compress
entity: node
node: entity
person: entity
relationship: relation
connect: relation
fact: observation
note: observation
knowledge: graph memory
memory: graph knowledge
investigate: research
study: research
explore: research
subscribe: subscriber
several: multiple
both: multiple
send: message email
mail: email
email: mail message
weather: forecast temperature
forecast: weather
temperature: weather
price: cost quote stock
buy: order purchase
order: purchase
book: reserve booking
schedule: calendar event
meeting: calendar event
"""


def stem(word: str) -> str:
    """Return a word without grammatical endings: not always an English word, but equal for related words."""
    word = word.lower()
    if len(word) <= _SHORTEST_STEM or word.isdigit():
        return word
    for ending, instead in (("ies", "y"), ("sses", "ss"), ("ing", ""), ("ed", ""), ("es", "e"), ("s", "")):
        if not word.endswith(ending) or word.endswith(("ss", "us", "is")):
            continue
        cut = word[: -len(ending)] + instead
        if len(cut) >= _SHORTEST_STEM and re.search(r"[aeiouy]", cut):
            word = _DOUBLED.sub(r"\1", cut) if ending in {"ing", "ed"} else cut
            break
    if len(word) > _SHORTEST_STEM and word.endswith("e"):
        word = word[:-1]
    return word[:-1] + "i" if len(word) > _SHORTEST_STEM and word.endswith("y") else word


def stems(text: str) -> tuple[str, ...]:
    """Return the stems of a text, in order: the same for `getFileInfo`, `get_file_info` and "Get file infos"."""
    return _cached_stems(text) if len(text) <= MAX_CACHED_TEXT_CHARS else _stems(text)


@lru_cache(maxsize=MAX_CACHED_TEXTS)
def _cached_stems(text: str) -> tuple[str, ...]:
    return _stems(text)


def _stems(text: str) -> tuple[str, ...]:
    text = _TWO_WORDS.sub(lambda match: _ONE_WORD[match.group().lower()], text)
    return tuple(stem(word) for word in _WORD.findall(text) if word.lower() not in _FILLER)


def synonyms_of(word: str) -> tuple[str, ...]:
    """Return stems that may be meant by this stem."""
    return _SYNONYMS.get(word, ())


def _parse_synonyms() -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for line in _MEANINGS.strip().splitlines():
        word, _, others = line.partition(":")
        found[stem(word)] = found.get(stem(word), ()) + tuple(stem(other) for other in others.split())
    return found


_SYNONYMS = _parse_synonyms()
