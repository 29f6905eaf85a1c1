import assert from "node:assert/strict";
import { test } from "node:test";
import { expandTemplate, listVariables } from "../src/screens/servers/uri-template";

// The variables of the examples in RFC 6570.
const VALUES = new Map([
  ["var", "value"],
  ["hello", "Hello World!"],
  ["half", "50%"],
  ["base", "http://example.com/home/"],
  ["path", "/foo/bar"],
  ["x", "1024"],
  ["y", "768"],
  ["who", "fred"],
  ["empty", ""],
]);

test("templates are expanded as the examples of RFC 6570 are", () => {
  const examples: [string, string][] = [
    ["{var}", "value"],
    ["{hello}", "Hello%20World%21"],
    ["{half}", "50%25"],
    ["O{empty}X", "OX"],
    ["{x,hello,y}", "1024,Hello%20World%21,768"],
    ["{var:3}", "val"],
    ["{+hello}", "Hello%20World!"],
    ["{+half}", "50%25"],
    ["{base}index", "http%3A%2F%2Fexample.com%2Fhome%2Findex"],
    ["{+base}index", "http://example.com/home/index"],
    ["{+path}/here", "/foo/bar/here"],
    ["X{#var}", "X#value"],
    ["{#path,x}/here", "#/foo/bar,1024/here"],
    ["X{.x,y}", "X.1024.768"],
    ["{/var,x}/here", "/value/1024/here"],
    ["{;x,y}", ";x=1024;y=768"],
    ["{?x,y}", "?x=1024&y=768"],
    ["{?x,undef}", "?x=1024"],
    ["{?undef}", ""],
    ["?fixed=yes{&x}", "?fixed=yes&x=1024"],
    ["/no/variable", "/no/variable"],
  ];
  for (const [template, expected] of examples) assert.equal(expandTemplate(template, VALUES), expected, template);
});

test("a value cannot leave its place in the address", () => {
  const values = new Map([["id", "../../etc/passwd?x#y{var}"]]);
  assert.equal(expandTemplate("file:///notes/{id}", values), "file:///notes/..%2F..%2Fetc%2Fpasswd%3Fx%23y%7Bvar%7D");
  assert.equal(expandTemplate("file:///{id}", new Map([["id", "\ud800"]])), "file:///%EF%BF%BD");
});

test("variables are listed once, and those of a query are not needed", () => {
  assert.deepEqual(listVariables("db://{table}/{+path}{?limit,table}"), [
    { name: "table", isRequired: true },
    { name: "path", isRequired: true },
    { name: "limit", isRequired: false },
  ]);
  assert.deepEqual(listVariables("plain://address"), []);
  for (const wrong of ["x://{}", "x://{a b}", "x://{=a}", "x://{a,,b}"])
    assert.equal(listVariables(wrong), null, wrong);
});
