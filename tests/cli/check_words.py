#!/usr/bin/env python3
"""check_words.py MEGAMLA SOURCE_DIR - --help, the manual page and the completion name the same
verbs and options."""

import pathlib
import re
import subprocess
import sys

MEGAMLA, SOURCE = sys.argv[1], pathlib.Path(sys.argv[2])


def help_of(*words):
    return subprocess.run([MEGAMLA, *words, "--help"], check=True, capture_output=True,
                          text=True).stdout


def manual_sections():
    """Title in lower case -> its text, with the escapes for hyphens undone."""
    text = (SOURCE / "app/cli/megamla.1").read_text().replace("\\-", "-")
    parts = re.split(r"^\.SH (.*)$", text, flags=re.M)
    return {title.lower(): body for title, body in zip(parts[1::2], parts[2::2])}


def options_of(text):
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text))


def completion_of(verb):
    text = (SOURCE / "app/cli/megamla.bash").read_text()
    branch = re.search(rf"^    {verb}\)(.*?);;$", text, flags=re.M | re.S).group(1)
    return options_of(branch)


problems = []
verbs = re.findall(r"^  (\w+) ", help_of().split("verbs\n")[1].split("\n\n")[0], flags=re.M)
manual = manual_sections()
for verb in verbs:
    text = help_of(verb)
    # The table only: examples and prose may name options of other commands.
    table = text.split("\noptions\n")[1].split("\n\n")[0]
    said = set(re.findall(r"^  (?:-\w, |    )(--[a-z-]+)", table, flags=re.M))
    if f"megamla {verb}" not in manual:
        problems.append(f"the manual has no section for {verb}")
        continue
    described = set(re.findall(r"^\.(?:B|BR|BI) (?:-\w \", \" )?(--[a-z-]+)",
                               manual[f"megamla {verb}"], flags=re.M)) | {"--help"}
    for what, found in (("manual", described), ("completion", completion_of(verb))):
        if found != said:
            problems.append(f"{verb}: --help and the {what} differ in {sorted(found ^ said)}")
words = (SOURCE / "app/cli/megamla.bash").read_text()
for verb in verbs:
    if len(re.findall(rf'"[a-z -]*\b{verb}\b', words)) < 2:
        problems.append(f"the completion does not offer {verb}")
print("\n".join(problems) or f"{len(verbs)} verbs agree")
sys.exit(1 if problems else 0)
