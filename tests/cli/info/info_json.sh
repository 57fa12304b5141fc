"$MEGAMLA" info --json | python3 -c '
import json, sys
info = json.load(sys.stdin)
assert info["devices"][0]["device"] == "cpu" and info["devices"][0]["available"]
ops = {i["op"] for i in info["implementations"]}
assert {"attend", "kv_insert", "kv_gather", "project"} <= ops, ops
for i in info["implementations"]:
    assert i["available"] == (i["reason"] == ""), i
    assert i["name"] != "reference" or i["available"] and i["by_name_only"], i
    assert i["name"] != "portable" or not i["by_name_only"], i
print("fine")'
