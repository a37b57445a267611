"""Prints the modules that a worker imports and this Python does not have, sorted, one a line. Imports nothing."""

import ast
import importlib.util
import pathlib
import sys

worker = pathlib.Path(sys.argv[1]).resolve()
beside = [worker.parent, worker.parent.parent]
todo, seen, missing = [worker], set(), set()
while todo:
    for node in ast.walk(ast.parse(todo.pop().read_bytes())):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module]
        for name in {name.partition(".")[0] for name in names} - seen:
            seen.add(name)
            files = [folder / (name + ".py") for folder in beside if (folder / (name + ".py")).is_file()]
            todo += files[:1]
            if not files and importlib.util.find_spec(name) is None:
                missing.add(name)
print("\n".join(sorted(missing)))
