#!/usr/bin/env python3
"""check_layers.py - the rules of the source tree that a compiler does not know.

    base <- num <- kv <- ops/* <- api        gpu stands beside kv; ops never see each other

Run it from the repository's root; it lists every violation and fails when there is one.
--selftest writes a small tree with each violation and expects to find it.
"""
import os
import re
import sys
import tempfile

BELOW = {"base": [], "num": ["base"], "kv": ["base", "num"], "gpu": ["base", "num", "kv"]}
LIBRARY = list(BELOW)
# Layer -> the layers its files may include, besides itself and the public headers.
MAY_SEE = {"include": [], **BELOW, "ops": LIBRARY, "api": LIBRARY + ["ops"], "layer": ["base"],
           "model": ["base"], "app": ["base", "model"], "python": [], "bench": [], "examples": []}
STANDARD = {"<%s.h>" % name for name in
            "assert complex errno float inttypes limits math stdalign stdarg stdbool stddef "
            "stdint stdio stdlib string".split()}
# A public header may share its name with the internal one of the same thing; nothing else may.
TWICE = {"README.md", "CMakeLists.txt", "__init__.py", "attend.h", "chain.h", "context.h",
         "layout.h", "project.h", "rope.h", "weights.h"}
FORBIDDEN = re.compile(r"\b(getenv|secure_getenv|setenv|printf|fprintf|puts|perror|exit|_exit|abort"
                       r"|rand|system)\s*\(|\b(stdout|stderr)\b")
LAYOUT_NUMBER = re.compile(r"(?<![\w.])(584|576|528|288|448)[uUlL]*(?![\w.])")
# Headers of CUDA: nvcc includes what kernels need by itself, and host code sees src/base/gpu.h.
CUDA_HEADER = re.compile(r"<(cuda|cooperative_groups|driver_types|nv/|cub/|thrust/|mma\.h)")
CUDA_FILE = re.compile(r"\.cuh?$|^src/(base|gpu)/gpu(_\w+)?_cuda\.c$")
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX)\b")
CODE = (".c", ".h", ".inc", ".cu", ".cuh")
TOP = ("include src model app python bench examples tests fuzz tools cmake docs").split()


def layer_of(path):
    parts = path.split("/")
    if parts[0] != "src":
        return parts[0]
    return "/".join(parts[1:3]) if parts[1] == "ops" else parts[1]


def is_test(path):
    return path.startswith(("tests/", "fuzz/")) or re.search(r"_(test|prop|bench)\.(c|inc)$", path)


def target_of(include):
    """The layer an include line leads to, None for a system header."""
    name = include[1:-1]
    if name.startswith("megamla/"):
        return "include"
    if include[0] == "<":
        return None
    return layer_of(name if name.split("/")[0] in TOP else "src/" + name)


def check_include(path, include):
    layer, target = layer_of(path), target_of(include)
    if include.endswith('.cuh"') and layer != "gpu" and not path.endswith((".cu", ".cuh")):
        return "%s includes %s: PTX wrappers are for kernels" % (path, include)
    if CUDA_HEADER.match(include) and not CUDA_FILE.search(path):
        return "%s includes %s: only kernels and gpu*_cuda.c see CUDA" % (path, include)
    if target is None:
        if layer == "include" and include not in STANDARD:
            return "%s includes %s: public headers need only the C library" % (path, include)
        return None
    allowed = MAY_SEE.get(layer.split("/")[0])
    if allowed is None or target in (layer, "include"):
        return None
    if layer.startswith("ops/") and target.startswith("ops/"):
        return "%s includes %s: operations never include each other" % (path, include)
    if target.split("/")[0] not in allowed:
        return "%s includes %s: %s may not see %s" % (path, include, layer, target)
    return None


def without_comments(text):
    def blank(match):
        return re.sub(r"[^\n]", " ", match.group()) if match.group()[0] == "/" else '""'
    text = re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', blank, text, flags=re.S)
    return re.sub(r"\bstatic_assert\s*\([^;]*;", lambda m: "\n" * m.group().count("\n"), text)


def check_file(path, text):
    found = []
    for include in re.findall(r'^\s*#\s*include\s+(<[^>]+>|"[^"]+")', text, flags=re.M):
        if not is_test(path):
            found.append(check_include(path, include))
    for n, line in enumerate(text.split("\n"), 1):
        if UNFINISHED.search(line) and not path.startswith("tools/check_layers"):
            found.append("%s:%d: unfinished: %s" % (path, n, line.strip()))
    if path.startswith("src/") and path.endswith(CODE) and not is_test(path):
        for n, line in enumerate(without_comments(text).split("\n"), 1):
            if FORBIDDEN.search(line):
                found.append("%s:%d: the library does not do this: %s" % (path, n, line.strip()))
            if LAYOUT_NUMBER.search(line) and path not in ("src/kv/layout.h", "src/kv/layout.c"):
                found.append("%s:%d: a number of kv/layout.h: %s" % (path, n, line.strip()))
            if re.search(r"\b(__)?asm(__)?\b", line) and not path.startswith("src/gpu/"):
                found.append("%s:%d: assembly stays in src/gpu" % (path, n))
            elif re.search(r"\b(__)?asm(__)?\b", line) and not path.endswith(".cuh"):
                found.append("%s:%d: assembly stays in .cuh files" % (path, n))
    return [f for f in found if f]


def files_of(root):
    for top in TOP:
        for folder, dirs, names in os.walk(os.path.join(root, top)):
            dirs[:] = sorted(d for d in dirs if d != "__pycache__" and d != "corpus")
            for name in sorted(names):
                yield os.path.relpath(os.path.join(folder, name), root).replace(os.sep, "/")


def check_tree(root):
    found, first = [], {}
    for path in files_of(root):
        name = os.path.basename(path)
        if name in first and name not in TWICE:
            found.append("%s: %s has the same name" % (path, first[name]))
        first.setdefault(name, path)
        if path.endswith(CODE + (".py", ".sh", ".cmake", ".md")):
            with open(os.path.join(root, path), encoding="utf-8") as file:
                found += check_file(path, file.read())
    return found


# One line a rule: a file, its text, and a word of the violation; "" means that it is fine.
CASES = [
    ("src/base/low.c", '#include "num/bits.h"\n', "may not see num"),
    ("src/ops/a/a.c", '#include "ops/b/b.h"\n', "each other"),
    ("src/ops/a/a2.c", '#include "api/x.h"\n', "may not see api"),
    ("src/ops/a/a3.c", '#include "kv/layout.h"\n#include "ops/a/a.h"\n', ""),
    ("src/kv/k.c", '#include "gpu/tma.cuh"\n', "PTX"),
    ("src/kv/k2.c", '__asm__("nop");\n', "assembly"),
    ("src/ops/a/a_cuda.cu", 'asm volatile("nop;");\n', "stays in src/gpu"),
    ("src/gpu/a_kernel.cu", 'asm volatile("nop;");\n', "stays in .cuh"),
    ("src/gpu/ptx.cuh", 'asm volatile("nop;");\n', ""),
    ("src/ops/a/a_cuda.cu", '#include "gpu/ptx.cuh"\n#include <cuda_bf16.h>\n', ""),
    ("src/ops/a/a_cuda.c", "#include <cuda_runtime_api.h>\n", "see CUDA"),
    ("src/ops/a/a_cuda.h", "#include <cuda_runtime.h>\n", "see CUDA"),
    ("src/ops/a/a_cuda.cu", '#include "ops/b/b_cuda.h"\n', "each other"),
    ("src/ops/a/a_cuda.cu", 'printf("%d", 1);\n', "does not do"),
    ("src/ops/a/a_cuda.cu", "const int row = 584;\n", "kv/layout.h"),
    ("src/base/gpu_cuda.c", "#include <cuda_runtime_api.h>\n", ""),
    ("app/bench/b.c", "#include <cublas_v2.h>\n#include <cuda.h>\n", "see CUDA"),
    ("src/gpu/g.cuh", '#include "ops/a/a.h"\n', "may not see ops"),
    ("include/megamla/p.h", "#include <unistd.h>\n", "C library"),
    ("include/megamla/p2.h", '#include "base/check.h"\n', "may not see base"),
    ("model/m.c", '#include "app/cli/cli.h"\n', "may not see app"),
    ("app/cli/c.c", '#include "kv/record.h"\n', "may not see kv"),
    ("app/cli/c2.c", '#include "model/m.h"\n#include "base/check.h"\n', ""),
    ("examples/e.c", '#include "base/check.h"\n', "may not see base"),
    ("tests/t_test.c", '#include "ops/a/a.h"\n', ""),
    ("src/api/n.c", "int64_t bytes = n * 584;\n", "kv/layout.h"),
    ("src/api/n2.c", "/* 584 */ float x = 448.0f; static_assert(X == 528,\n\"\");\n", ""),
    ("src/api/v.c", 'int f(void) { return getenv("A") != 0; }\n', "does not do"),
    ("src/api/v2.c", 'int f(char *s) { return snprintf(s, 1, "exit(0)"); }\n', ""),
    ("src/api/u.c", "/* TO" "DO: later */\n", "unfinished"),
    ("src/num/n_test.inc", '#include "support/rng.h"\nprintf("528");\n', ""),
    ("src/ops/a/README.md", "528 bytes\n", ""),
    ("src/num/t_test.c", "", "same name"),
]


def selftest():
    for path, text, word in CASES:
        with tempfile.TemporaryDirectory() as root:
            for p, t in [("tests/t_test.c", ""), (path, text)]:
                os.makedirs(os.path.dirname(os.path.join(root, p)), exist_ok=True)
                with open(os.path.join(root, p), "w", encoding="utf-8") as file:
                    file.write(t)
            found = check_tree(root)
        if (not found) != (not word) or (word and word not in found[0]):
            return ["selftest: %s: expected %r, found %r" % (path, word, found)]
    return []


if __name__ == "__main__":
    problems = selftest() if "--selftest" in sys.argv else check_tree(".")
    print("\n".join(problems) if problems else "no violation")
    sys.exit(1 if problems else 0)
