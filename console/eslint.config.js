import eslint from "@eslint/js";
import hooks from "eslint-plugin-react-hooks";
import typescript from "typescript-eslint";

export default typescript.config(
  { ignores: ["node_modules", "*.js"] },
  eslint.configs.recommended,
  ...typescript.configs.strictTypeChecked,
  {
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
    plugins: { "react-hooks": hooks },
    rules: {
      "react-hooks/rules-of-hooks": "error",
      "react-hooks/exhaustive-deps": "error",
      "max-lines": ["error", 500],
      "max-lines-per-function": ["error", { max: 110, skipComments: true }],
      "@typescript-eslint/restrict-template-expressions": ["error", { allowNumber: true }],
      "@typescript-eslint/no-confusing-void-expression": ["error", { ignoreArrowShorthand: true }],
      // Text of models reaches the page as nodes or through components/markdown.ts, never as HTML.
      "no-restricted-syntax": [
        "error",
        {
          selector: "MemberExpression[property.name=/^(innerHTML|outerHTML)$/]",
          message: "Use text, or renderMarkdown.",
        },
        { selector: "JSXAttribute[name.name='dangerouslySetInnerHTML']", message: "Use text, or <Markdown>." },
      ],
    },
  },
  // The types of the API are written by `make reference`, as many as the console reads.
  { files: ["src/api/schema.ts"], rules: { "max-lines": "off" } },
  // node:test returns promises that its own runner awaits.
  { files: ["tests/**"], rules: { "@typescript-eslint/no-floating-promises": "off", "max-lines-per-function": "off" } },
);
