#!/usr/bin/env python3
"""check_ptxas.py BUILD_DIR [--write] - what the assembler reports of the CUDA kernels.

No kernel may spill, use local memory (a stack) or compute in double precision, and none may use
more registers than is declared beside its source: x.regs for x.cu, a row a kernel and a column a
compute capability. A new kernel has to be declared. --write declares what the build has, and leaves
columns that it was not built for. Read the difference before you commit it: registers decide
how many blocks a multiprocessor holds, which the head of the kernel's file says.

How many registers a kernel gets differs with the release of nvcc, which the first line of x.regs
names; with another one growth is told and no failure. Fewer are a failure, with any release, where
warps share out what the launch took (GPU_REGISTERS_RAISE): they would wait for ever for what is
missing.

Run it from the repository's root, after a build. --selftest shows that it can fail.
"""
import os
import re
import sys
import tempfile

HEAD = "# Registers a thread with nvcc %s; tools/check_ptxas.py --write makes this file.\n"
ENTRY = re.compile(r"ptxas info +: Compiling entry function '(\w+)' for 'sm_(\w+)'")
FUNCTION = re.compile(r"ptxas info +: Function properties for (\S+)")
MEMORY = re.compile(r" +(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"ptxas info +: Used (\d+) registers")
DOUBLE = re.compile(r"double precision", re.I)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def report_parse(text):
    """({(kernel, arch): registers}, [problem]) of one report."""
    registers, problems, kernel, arch, function, memory = {}, [], None, None, None, set()
    for line in text.split("\n"):
        if m := ENTRY.match(line):
            kernel, arch = m.groups()
        elif m := FUNCTION.match(line):
            function = m.group(1)
        elif m := MEMORY.match(line):
            stack, stores, loads = map(int, m.groups())
            memory.add((function, arch))
            if stores or loads:
                problems.append("%s for %s spills: %d bytes are stored, %d loaded"
                                % (function, arch, stores, loads))
            elif stack:
                problems.append("%s for %s uses %d bytes of stack" % (function, arch, stack))
        elif m := USED.match(line):
            registers[kernel, arch] = int(m.group(1))
            if (kernel, arch) not in memory:
                problems.append("%s for %s: the report does not tell its stack" % (kernel, arch))
    n = len(DOUBLE.findall(text))
    if n:
        problems.append("computes in double precision (%d reports)" % n)
    return registers, problems


def declared_parse(text):
    """(release of nvcc, [arch], {(kernel, arch): registers}) of a .regs file."""
    release = re.match(r"# Registers a thread with nvcc ([\d.]+);", text)
    rows = [line.split() for line in text.split("\n") if line and not line.startswith("#")]
    if not release or not rows or rows[0][0] != "kernel":
        return "", [], {}
    archs = rows[0][1:]
    return release.group(1), archs, {(row[0], arch): int(n) for row in rows[1:]
                                     for arch, n in zip(archs, row[1:]) if n != "-"}


def arch_key(arch):
    return int(re.match(r"\d+", arch).group()), arch


def declared_format(release, declared):
    archs = sorted({arch for _, arch in declared}, key=arch_key)
    kernels = sorted({kernel for kernel, _ in declared})
    width = max(len("kernel"), *(len(kernel) for kernel in kernels))
    rows = [("kernel", archs)] + [(k, [str(declared.get((k, a), "-")) for a in archs])
                                  for k in kernels]
    return HEAD % release + "".join(
        name.ljust(width) + "".join(" %4s" % cell for cell in cells) + "\n" for name, cells in rows)


def sources_of(root):
    for folder, dirs, names in os.walk(os.path.join(root, "src")):
        dirs.sort()
        for name in sorted(names):
            if name.endswith((".cu", ".regs")):
                yield os.path.join(folder, name)


def budget_compare(used, declared, columns, is_same_release):
    """([problem], [note]) of registers used and declared; both map (kernel, arch) to a number."""
    problems = ["%s is declared, and there is no such kernel" % kernel
                for kernel in sorted({k for k, _ in declared} - {k for k, _ in used})]
    notes, missing = [], {}
    for kernel, arch in sorted(used, key=lambda key: (key[0], arch_key(key[1]))):
        n, most = used[kernel, arch], declared.get((kernel, arch))
        if most is None and (arch in columns or not columns):
            missing.setdefault(kernel, []).append("%d for %s" % (n, arch))
        elif most is None:
            notes.append("there is no column for %s" % arch)
        elif n > most:
            text = "%s for %s uses %d registers, %d are declared" % (kernel, arch, n, most)
            (problems if is_same_release else notes).append(text)
    problems += ["%s is not declared; its registers: %s" % (kernel, ", ".join(all_archs))
                 for kernel, all_archs in missing.items()]
    return problems, notes


def shares_registers(source):
    """Whether warps of its kernels raise their registers, in it or in an .inc that it is made of."""
    text = read(source)
    for name in re.findall(r'#include "\w+/(\w+\.inc)"', text):
        path = os.path.join(os.path.dirname(source), name)
        text += read(path) if os.path.exists(path) else ""
    return "GPU_REGISTERS_RAISE(" in text


def check_source(source, build, release, archs, write):
    """(number of kernels, [problem], [note]) of one .cu file."""
    name = os.path.basename(source)[:-len(".cu")]
    budget = source[:-len(".cu")] + ".regs"
    report = os.path.join(build, "cuda", name + ".ptxas")
    if not os.path.exists(report):
        return 0, ["%s.cu was not built" % name], []
    used, problems = report_parse(read(report))
    kernels = {kernel for kernel, _ in used}
    if not kernels:
        problems.append("the report has no kernel")
    for kernel in sorted(kernels):
        problems += ["%s for %s: the report does not tell its registers" % (kernel, arch)
                     for arch in archs if (kernel, arch) not in used]
    its_release, columns, declared = declared_parse(
        read(budget) if os.path.exists(budget) else "")
    if write:
        kept = {(k, a): n for (k, a), n in declared.items() if k in kernels}
        if kernels:
            with open(budget, "w", encoding="utf-8") as file:
                file.write(declared_format(release, {**kept, **used}))
        return len(kernels), ["%s.cu: %s" % (name, p) for p in problems], []
    its_problems, notes = budget_compare(used, declared, columns, release == its_release)
    if shares_registers(source):
        its_problems += ["%s for %s uses %d registers, fewer than the %d that its warps share"
                         % (kernel, arch, n, declared[kernel, arch])
                         for (kernel, arch), n in sorted(used.items())
                         if arch == "90a" and n < declared.get((kernel, arch), 0)]
    return (len(kernels), ["%s.cu: %s" % (name, p) for p in problems + its_problems],
            ["%s.cu: %s (declared for nvcc %s)" % (name, n, its_release) for n in notes])


def check(root, build, write=False):
    """([problem], [line to print])"""
    about = os.path.join(build, "cuda", "nvcc.txt")
    if not os.path.exists(about):
        return ["%s is no build with CUDA" % build], []
    release, *archs = read(about).split()
    problems, notes, n = [], [], 0
    for path in sources_of(root):
        if path.endswith(".regs"):
            if not os.path.exists(path[:-len(".regs")] + ".cu"):
                problems.append("%s belongs to no .cu file" % os.path.basename(path))
            continue
        n_kernels, its_problems, its_notes = check_source(path, build, release, archs, write)
        n += n_kernels
        problems += its_problems
        notes += its_notes
    if problems and not write:
        problems.append("(what is meant is declared by: tools/check_ptxas.py --write %s)" % build)
    if not problems:
        notes.append("%d kernels for %s: no spills, no stack, no double precision, registers as "
                     "declared" % (n, ", ".join(archs)))
    return problems, sorted(set(notes[:-1])) + notes[-1:]


REPORT = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'k' for 'sm_80'
ptxas info    : Function properties for k
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 368 bytes cmem[0]
ptxas info    : Compiling entry function 'k' for 'sm_90a'
ptxas info    : Function properties for k
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 38 registers, used 1 barriers
"""
REGS = HEAD % "13.0" + "kernel   80  90a\nk        40   40\n"
# What is replaced in which file, by what, and a word of the problem; "" means that it is fine.
CASES = [
    ("k.ptxas", "", "", ""),
    ("k.ptxas", "Used 40", "Used 41", "uses 41 registers, 40 are declared"),
    ("k.ptxas", "Used 38", "Used 41", "k for 90a uses 41"),
    ("k.ptxas", "Used 40", "Used 32", ""),
    ("k.ptxas", "0 bytes spill stores", "4 bytes spill stores", "spills"),
    ("k.ptxas", "0 bytes spill loads", "4 bytes spill loads", "spills"),
    ("k.ptxas", "0 bytes stack", "8 bytes stack", "8 bytes of stack"),
    ("k.ptxas", "ptxas info    : 0", "ptxas a.ptx, line 7; warning : Program is doing double "
     "precision computations.\nptxas info    : 0", "double precision"),
    ("k.ptxas", "'k' for 'sm_90a'", "'j' for 'sm_90a'", "j for 80: the report does not tell"),
    ("k.ptxas", "Used", "Uses", "no kernel"),
    ("k.ptxas", "bytes stack frame", "bytes of stack", "does not tell its stack"),
    ("k.regs", "k  ", "j  ", "no such kernel"),
    ("k.regs", "k  ", "# ", "k is not declared"),
    ("k.regs", "40   40", " -   40", "its registers: 40 for 80"),
    ("k.regs", "40   40", "40   37", "k for 90a uses 38 registers, 37 are declared"),
    ("k.regs", "nvcc 13.0", "nvcc 12.8", ""),
    ("k.regs", "  90a", "", ""),
    ("k.cu", "", "GPU_REGISTERS_RAISE(80);", "38 registers, fewer than the 40"),
    ("k.cu", None, None, "k.regs belongs to no .cu"),
    ("k.regs", None, None, "k is not declared"),
    ("k.ptxas", None, None, "was not built"),
    ("nvcc.txt", "13.0", "12.8", ""),
    ("nvcc.txt", "90a", "90a 120", "k for 120: the report does not tell"),
    ("nvcc.txt", None, None, "no build with CUDA"),
]


def selftest():
    problems = []
    for name, old, new, word in CASES:
        with tempfile.TemporaryDirectory() as root:
            build = os.path.join(root, "build")
            os.makedirs(os.path.join(build, "cuda"))
            os.makedirs(os.path.join(root, "src"))
            for file_name, text in (("k.cu", ""), ("k.regs", REGS), ("k.ptxas", REPORT),
                                    ("nvcc.txt", "13.0 80 90a")):
                folder = "build/cuda" if file_name in ("k.ptxas", "nvcc.txt") else "src"
                if file_name == name and old is None:
                    continue
                with open(os.path.join(root, folder, file_name), "w", encoding="utf-8") as file:
                    file.write(text.replace(old, new) if file_name == name else text)
            found, _ = check(root, build)
            if (not found) != (not word) or (word and word not in "\n".join(found)):
                problems.append("selftest: %s: %r: expected %r, found %r"
                                % (name, new, word, found))
            # What was written is accepted, unless the report itself is the problem.
            if name == "k.regs":
                check(root, build, write=True)
                problems += ["selftest, written: " + p for p in check(root, build)[0]]
    return problems


def main(arguments):
    if arguments == ["--selftest"]:
        problems, lines = selftest(), ["%d cases" % len(CASES)]
    elif len([a for a in arguments if a != "--write"]) == 1:
        build = [a for a in arguments if a != "--write"][0]
        problems, lines = check(".", build, write="--write" in arguments)
    else:
        print(__doc__, file=sys.stderr)
        return 2
    print("\n".join(lines + problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
