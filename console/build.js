// Builds the console into src/holodeck/gateway/console/static: files with content hashes in their names, each also
// compressed, and index.html, which names the first of them. `node build.js tests` builds the unit tests instead.
import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, extname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import * as esbuild from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const target = process.env.CONSOLE_STATIC ?? join(here, "../src/holodeck/gateway/console/static");
const shared = {
  bundle: true,
  jsx: "automatic",
  jsxImportSource: "preact",
  target: "es2022",
  format: "esm",
  logLevel: "warning",
};

if (process.argv[2] === "tests") {
  const tests = readdirSync(join(here, "tests")).filter(
    (name) => name.endsWith(".test.ts") || name.endsWith(".test.tsx"),
  );
  const outdir = join(here, "../.cache/console-tests");
  // One that was deleted would still run.
  rmSync(outdir, { recursive: true, force: true });
  await esbuild.build({
    ...shared,
    entryPoints: tests.map((name) => join(here, "tests", name)),
    outdir,
    outExtension: { ".js": ".mjs" },
    platform: "node",
  });
} else {
  await build();
}

async function build() {
  rmSync(target, { recursive: true, force: true });
  mkdirSync(target, { recursive: true });
  const { metafile } = await esbuild.build({
    ...shared,
    entryPoints: [join(here, "src/main.tsx"), join(here, "src/style/main.css")],
    outdir: target,
    entryNames: "[name]-[hash]",
    chunkNames: "[name]-[hash]",
    assetNames: "[name]-[hash]",
    loader: { ".svg": "file" },
    splitting: true,
    minify: true,
    legalComments: "none",
    metafile: true,
  });
  const built = Object.entries(metafile.outputs);
  const find = (entry) => basename(built.find(([, output]) => output.entryPoint?.endsWith(entry))[0]);
  const icon = readFileSync(join(here, "src/icon.svg"));
  const iconName = `icon-${createHash("sha256").update(icon).digest("hex").slice(0, 8).toUpperCase()}.svg`;
  writeFileSync(join(target, iconName), icon);
  const page = readFileSync(join(here, "src/index.html"), "utf8")
    .replace("main.css", find("src/style/main.css"))
    .replace("main.js", find("src/main.tsx"))
    .replace("icon.svg", iconName);
  writeFileSync(join(target, "index.html"), page);
  for (const name of readdirSync(target)) compress(join(target, name));
}

function compress(path) {
  if (![".html", ".js", ".css", ".svg"].includes(extname(path))) return;
  const content = readFileSync(path);
  writeFileSync(`${path}.gz`, gzipSync(content, { level: 9 }));
  const params = { [constants.BROTLI_PARAM_QUALITY]: 11, [constants.BROTLI_PARAM_SIZE_HINT]: content.length };
  writeFileSync(`${path}.br`, brotliCompressSync(content, { params }));
}
