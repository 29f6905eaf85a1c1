import assert from "node:assert/strict";
import { test } from "node:test";
import { formatBytes, formatCount, formatSeconds, indentJSON } from "../src/components/format";
import { endOfSentences } from "../src/components/live-region";

test("seconds have the unit that people would choose", () => {
  const shown = [0.0004, 0.0123, 0.9999, 1.5, 12.34, 75, 3_700].map((seconds) => formatSeconds(seconds));
  assert.deepEqual(shown, ["<1 ms", "12 ms", "1.00 s", "1.50 s", "12.3 s", "1 min 15 s", "1 h 1 min"]);
  // What is rounded up is the next unit, not sixty of the smaller one.
  const rounded = [9.996, 59.96, 119.7, 3_599.8].map((seconds) => formatSeconds(seconds));
  assert.deepEqual(rounded, ["10.0 s", "1 min 0 s", "2 min 0 s", "1 h 0 min"]);
  assert.equal(formatSeconds(null), "–");
});

test("counts and bytes are grouped", () => {
  assert.equal(formatCount(1234567), "1,234,567");
  assert.deepEqual([999, 12_345, 999_900, 2_500_000].map(formatBytes), ["999 B", "12 kB", "1.0 MB", "2.5 MB"]);
});

test("JSON is indented, other text stays", () => {
  assert.equal(indentJSON('{"a":1}'), '{\n  "a": 1\n}');
  assert.equal(indentJSON("no json"), "no json");
});

test("only whole sentences and lines are announced", () => {
  assert.equal(endOfSentences("It is three. That is"), "It is three.".length);
  assert.equal(endOfSentences("A line\nand more"), "A line\n".length);
  assert.equal(endOfSentences("3.14 is no end"), 0);
});
