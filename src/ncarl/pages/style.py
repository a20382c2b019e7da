"""How a page looks, and how it holds text."""

from __future__ import annotations

import html
import re

#: Characters that no page may hold: control characters, halves of characters, and those
#: that turn the direction of all that follows them.
CONTROL = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\u202a-\u202e\u2066-\u2069]"
)
#: Longer names are shortened in tables.
LONGEST = 60

STYLE = """
:root { color-scheme: light dark; --ink: #1d2329; --soft: #5c6670; --paper: #ffffff;
  --band: #f3f5f7; --line: #d5dbe1; --link: #0b5fa5; --good: #11693a; --bad: #a4262c;
  --partly: #8a5a00; --open: #55606b; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ec; --soft: #a2adb8;
  --paper: #14181c; --band: #1e242a; --line: #38424c; --link: #7cb8ee; --good: #6fcf97;
  --bad: #ff8f8f; --partly: #e8b95a; --open: #a9b4bf; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 78rem; padding: 1rem 1.2rem 4rem; color: var(--ink);
  background: var(--paper); line-height: 1.5; overflow-wrap: break-word;
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; } h2 { font-size: 1.3rem; margin-top: 3rem;
  border-bottom: 2px solid var(--line); padding-bottom: .2rem; }
h3 { font-size: 1rem; margin: 1.6rem 0 .4rem; } a { color: var(--link); }
nav ul { display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; padding: 0;
  list-style: none; }
.scroll { overflow-x: auto; max-width: 100%; border: 1px solid var(--line);
  border-radius: 6px; }
table { border-collapse: collapse; width: 100%; font-size: .88rem; }
th, td { padding: .35rem .6rem; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--line); }
thead th { background: var(--band); white-space: nowrap; }
.figures td, .figures thead th { text-align: right; white-space: nowrap;
  font-variant-numeric: tabular-nums; }
.figures thead th.group { text-align: center; }
.figures th.row, .figures th.corner { position: sticky; left: 0; text-align: left;
  background: var(--band); white-space: nowrap; }
tbody tr:last-child > * { border-bottom: 0; }
.facts td { overflow-wrap: anywhere; white-space: pre-line; }
.facts th { white-space: nowrap; } .lead { font-size: 1.08rem; max-width: 60rem; }
pre { overflow-x: auto; background: var(--band); padding: .6rem .8rem; margin: .6rem 0;
  border: 1px solid var(--line); border-radius: 6px; font-size: .85rem; }
.warning { border-left: 4px solid var(--partly); padding: .1rem .8rem; margin: 1rem 0; }
td, th, p, li, figcaption { unicode-bidi: plaintext; }
.small, .notes, footer { font-size: .8rem; color: var(--soft); }
.small { display: block; } .notes { padding-left: 1.2rem; }
.best { font-weight: 700; } .reached { color: var(--good); }
.word, .state { font-weight: 600; } .word { color: var(--partly); }
.good { color: var(--good); } .bad { color: var(--bad); }
.partly { color: var(--partly); } .open { color: var(--open); }
.state { white-space: nowrap; }
details { margin: 1rem 0; } summary { cursor: pointer; color: var(--link); }
figure { margin: 1.6rem 0; } figcaption { font-size: .88rem; color: var(--soft); }
figure img { max-width: 100%; height: auto; background: #ffffff; padding: .4rem;
  border: 1px solid var(--line); border-radius: 6px; }
@media (max-width: 40rem) { body { padding: .6rem .7rem 3rem; }
  h1 { font-size: 1.35rem; } th, td { padding: .3rem .4rem; } }
@media print { :root { color-scheme: light; --ink: #000; --paper: #fff; --soft: #444;
  --band: #f3f5f7; --line: #bbb; --good: #11693a; --bad: #a4262c; --partly: #8a5a00;
  --open: #55606b; --link: #000; } body { max-width: none; padding: 0; }
  .scroll { overflow: visible; border: 0; } table { font-size: .68rem; }
  th, td { padding: .15rem .25rem; }
  figure, tr { break-inside: avoid; } h2, h3 { break-after: avoid; }
  .figures td, .figures thead th { white-space: normal; }
  .figures th.row, .figures th.corner { position: static; }
  details::details-content { content-visibility: visible; block-size: auto; }
  details > :not(summary) { display: block !important; } nav { display: none; } }
"""


def safe(text: object) -> str:
    """A text as a page may hold it, in an attribute too; addresses stay mere text.

    Examples
    --------
    >>> safe('<b title="x">')
    '&lt;b title=&quot;x&quot;&gt;'
    """
    escaped = html.escape(CONTROL.sub("\N{REPLACEMENT CHARACTER}", str(text)))
    # Written so, no address of another machine stands in the file at all.
    return escaped.replace("://", ":&#47;&#47;")


def brief(text: object, most: int = LONGEST) -> str:
    """A text of no more than so many letters, cut in the middle if it is longer.

    Examples
    --------
    >>> brief("a name that goes on and on", 11)
    'a name … on'
    """
    words = str(text)
    if len(words) <= most:
        return words
    ahead = max(1, round(0.6 * most))
    return f"{words[:ahead]}…{words[len(words) - (most - ahead - 1) :]}"
