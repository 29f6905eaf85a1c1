"""The style sheet of the page: light and dark by the settings of the reader, from a phone to a wide window."""

from __future__ import annotations

STYLE = """
:root {
  color-scheme: light dark;
  --page: #f6f7f9; --surface: #ffffff; --sunken: #f0f2f5; --text: #1c2330; --muted: #5c6675; --line: #d9dee6;
  --accent: #3b62d8; --good: #1a7f4b; --bad: #c0342b; --mixed: #a86200; --good-soft: #e2f4ea; --bad-soft: #fce8e6;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #12151b; --surface: #1a1f28; --sunken: #141920; --text: #e4e8ef; --muted: #98a2b3; --line: #303845;
    --accent: #86a4ff; --good: #58c98c; --bad: #ff8b80; --mixed: #e6ac4d; --good-soft: #17352a; --bad-soft: #43211f;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--page); color: var(--text); font: 15px/1.5 system-ui, sans-serif;
}
.page-head, main { max-width: 70rem; margin: 0 auto; padding: 0 1.25rem; }
.page-head { padding-top: 2rem; }
main { padding-bottom: 4rem; }
h1 { font-size: 1.05rem; font-weight: 600; margin: 0; color: var(--muted); }
h2 { font-size: 1.1rem; margin: 0 0 0.75rem; overflow-wrap: anywhere; }
h4 { font-size: 0.8rem; margin: 0 0 0.25rem; color: var(--muted); font-weight: 600; overflow-wrap: anywhere; }
p { margin: 0 0 0.75rem; overflow-wrap: anywhere; }
.headline { font-size: 1.7rem; font-weight: 650; line-height: 1.25; margin: 0.15rem 0; }
.headline.passed { color: var(--good); }
.headline.failed { color: var(--bad); }
.muted { color: var(--muted); }
.notice { border-left: 3px solid var(--mixed); padding-left: 0.75rem; }
section {
  background: var(--surface); border: 1px solid var(--line); border-radius: 10px; padding: 1.1rem 1.25rem;
  margin-top: 1.25rem;
}
section > :last-child { margin-bottom: 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: 0.45rem 1rem 0.45rem 0; border-bottom: 1px solid var(--line); font-weight: 400; }
thead th { color: var(--muted); font-size: 0.8rem; white-space: nowrap; }
tbody tr:last-child > * { border-bottom: 0; }
tbody th { font-weight: 600; overflow-wrap: anywhere; min-width: 7rem; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
th:last-child, td:last-child { padding-right: 0; }
.rate { min-width: 15rem; }
.rate span { font-size: 0.8rem; color: var(--muted); }
small { font-size: 0.8rem; color: var(--muted); font-variant-numeric: tabular-nums; }
.plot { display: block; width: 100%; overflow: visible; --mark: var(--muted); }
.rate .plot, .cases .plot:not(.bar) { width: calc(100% - 10px); margin: 0 5px; }
.plot.passed { --mark: var(--good); }
.plot.failed { --mark: var(--bad); }
.plot.mixed { --mark: var(--mixed); }
.plot .track { stroke: var(--line); stroke-width: 2; }
.plot .interval { stroke: var(--mark); stroke-width: 6; stroke-linecap: round; opacity: 0.35; }
.plot circle { fill: var(--mark); }
.plot.bar { background: var(--sunken); border-radius: 2px; margin: 5px 0; }
.plot.bar rect { fill: var(--accent); }
.row {
  display: grid; grid-template-columns: minmax(8rem, 2fr) minmax(10rem, 3fr) minmax(5rem, 1fr) minmax(5rem, 1fr);
  gap: 0 1.5rem; align-items: center; padding: 0.4rem 0; border-top: 1px solid var(--line);
}
.row.head { border-top: 0; color: var(--muted); font-size: 0.8rem; padding-top: 0; }
.row .name { overflow-wrap: anywhere; }
.row .name small { display: block; }
.row .label { display: none; }
details { border-top: 1px solid var(--line); }
details.run { border: 1px solid var(--line); border-radius: 8px; margin: 0.5rem 0; padding: 0 0.75rem; }
summary { display: flex; gap: 0.75rem; align-items: baseline; padding: 0.55rem 0; cursor: pointer; }
summary::-webkit-details-marker { display: none; }
summary::before { content: "+"; color: var(--muted); font-family: ui-monospace, monospace; }
details[open] > summary::before { content: "-"; }
summary .name { overflow-wrap: anywhere; font-weight: 550; }
summary .muted { margin-left: auto; font-size: 0.8rem; text-align: right; overflow-wrap: anywhere; }
summary:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; border-radius: 4px; }
.body { padding: 0.25rem 0 1rem; }
.badge {
  flex: none; display: inline-block; min-width: 2.6rem; text-align: center; font-size: 0.75rem; font-weight: 650;
  border-radius: 5px; padding: 0.05rem 0.4rem; background: var(--sunken); color: var(--muted);
}
.badge.passed { background: var(--good-soft); color: var(--good); }
.badge.failed { background: var(--bad-soft); color: var(--bad); }
.checks { list-style: none; padding: 0; margin: 0 0 1rem; }
.checks li { display: flex; gap: 0.6rem; align-items: baseline; padding: 0.15rem 0; }
.checks span:last-child { overflow-wrap: anywhere; min-width: 0; }
code, pre { font: 13px/1.5 ui-monospace, monospace; }
.item { border-left: 3px solid var(--line); padding-left: 0.75rem; margin: 0 0 0.75rem; }
.item.user { border-color: var(--accent); }
.item.assistant { border-color: var(--good); }
.item.error { border-color: var(--bad); }
.item.expected { border-left-style: dashed; }
pre {
  margin: 0; white-space: pre-wrap; overflow-wrap: anywhere; max-height: 28rem; overflow-y: auto;
  background: var(--sunken); border-radius: 6px; padding: 0.5rem 0.7rem;
}
@media (max-width: 42rem) {
  .page-head, main { padding-left: 0.75rem; padding-right: 0.75rem; }
  section { padding: 0.9rem; }
  .headline { font-size: 1.35rem; }
  .row.head, thead { display: none; }
  tbody tr { display: grid; grid-template-columns: repeat(4, auto); gap: 0.25rem 1rem; padding: 0.5rem 0; }
  tbody tr + tr { border-top: 1px solid var(--line); }
  tbody th, tbody td { border: 0; padding: 0; min-width: 0; }
  tbody th, tbody .rate { grid-column: 1 / -1; }
  tbody .rate { order: -1; }
  tbody th { order: -2; }
  tbody .number { text-align: left; }
  [data-label]::before { content: attr(data-label); display: block; color: var(--muted); font-size: 0.8rem; }
  .row { grid-template-columns: 1fr 1fr; gap: 0.25rem 1rem; padding: 0.7rem 0; }
  .row .name, .row .name + span { grid-column: 1 / -1; }
  .row .name { font-weight: 550; }
  .row .label { display: inline; }
  summary { flex-wrap: wrap; gap: 0.25rem 0.6rem; }
  summary .name { flex: 1; }
  summary .muted { margin-left: 0; width: 100%; text-align: left; }
  .checks li { flex-wrap: wrap; gap: 0 0.6rem; }
  .checks span:last-child { width: 100%; }
}
@media print { body { background: none; } section { break-inside: avoid; } }
"""
