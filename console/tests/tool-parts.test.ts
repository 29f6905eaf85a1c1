import assert from "node:assert/strict";
import { test } from "node:test";
import { namesParts, readPictureURL, readToolParts, sizeOfBase64, stemOf } from "../src/components/tool-parts";

test("an output names parts that are no text by lines of their own", () => {
  assert.equal(namesParts("a chart\n[image: image/png, 70 bytes]"), true);
  assert.equal(namesParts("[audio: audio/wav, 45 bytes]"), true);
  assert.equal(namesParts("[resource: test://data.bin (application/octet-stream, 6 bytes)]"), true);
});

test("an output of text, or with a link that has no data, names none", () => {
  assert.equal(namesParts(null), false);
  assert.equal(namesParts("see [image: image/png, 70 bytes] above"), false);
  assert.equal(namesParts("[resource: test://far.pdf (application/pdf)]"), false);
});

test("all forms of the id of a call have one stem", () => {
  assert.equal(new Set(["mcp_a_1", "fc_a_1", "out_a_1"].map(stemOf)).size, 1);
  assert.equal(stemOf("plain"), "plain");
});

test("only types that browsers decode without running anything are pictures and sounds", () => {
  const kinds = (type: string) => readToolParts([{ type: "image", mime_type: type, data: "AA==" }]).map((p) => p.kind);
  assert.deepEqual(kinds("image/png"), ["picture"]);
  assert.deepEqual(kinds("IMAGE/PNG"), ["picture"]);
  assert.deepEqual(kinds("audio/wav"), ["sound"]);
  for (const type of [
    "image/svg+xml",
    "text/html",
    "image/png,<script>",
    "image/png;base64,AA==#",
    "application/pdf",
  ]) {
    assert.deepEqual(kinds(type), ["file"], type);
  }
});

test("text, links and what is no part are left out", () => {
  const content = [
    { type: "text", text: "x" },
    { type: "binary", uri: "test://far.pdf", is_link: true },
    { type: "binary", uri: "test://data.bin", mime_type: "application/octet-stream", data: "AAECAwT/" },
    null,
    "text",
  ];
  assert.deepEqual(
    readToolParts(content).map((part) => [part.kind, part.name, sizeOfBase64(part.data)]),
    [["file", "data.bin", 6]],
  );
  assert.deepEqual(readToolParts("text"), []);
});

test("the name of a file leads to no other folder", () => {
  const nameOf = (uri: string) => readToolParts([{ type: "binary", uri, data: "AA==" }])[0]?.name;
  assert.equal(nameOf("file:///etc/../report.pdf?x=1#y"), "report.pdf");
  assert.equal(nameOf("..\\..\\start.exe"), "start.exe");
  assert.equal(nameOf("/../.."), "binary");
  assert.equal(nameOf(""), "binary");
});

test("a data URL is a picture only with the type of one", () => {
  assert.equal(readPictureURL("data:image/png;base64,AA==")?.type, "image/png");
  assert.equal(readPictureURL("data:image/svg+xml;base64,AA=="), null);
  assert.equal(readPictureURL("https://elsewhere.example/a.png"), null);
});
