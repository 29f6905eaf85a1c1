"""The rehearsal model, which follows fixed rules and needs no key, and its ranking of tools by a request.

A request passes through these steps: `stemming` normalises words, `extract` finds entities that could be arguments,
`ranking` scores tools, `schema_fields` lists the fields of a tool, `arguments` (with `phrases`) fills them, `plan`
splits the request into steps, and `model` turns steps into calls and results into text.
"""
