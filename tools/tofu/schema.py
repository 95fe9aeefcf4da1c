#!/usr/bin/env python3
"""Writes provider/schema.json: the schema of the resources that infra/terraform uses, as `tofu providers schema -json`
prints it.

The AWS provider is in no package registry, but its schema is: the npm package @cdktf/provider-aws (MPL-2.0) is
generated from it. Run this in this folder, with the resources of RESOURCES extended:

    npm pack @cdktf/provider-aws@21.22.1 && python3 schema.py cdktf-provider-aws-21.22.1.tgz
"""

import json
import pathlib
import re
import sys
import tarfile

RESOURCES = """cloudwatch_dashboard cloudwatch_event_rule cloudwatch_event_target cloudwatch_log_group cloudwatch_metric_alarm
dynamodb_table iam_role iam_role_policy lambda_event_source_mapping lambda_function lambda_function_event_invoke_config
lambda_function_url lambda_permission sns_topic sns_topic_policy sqs_queue sqs_queue_policy""".split()
DATA = "caller_identity region".split()

SIMPLE = {"string": "string", "number": "number", "boolean": "bool"}
GETTERS = {"String": "string", "Number": "number", "Boolean": "bool", "List": ["list", "string"]}
ATTRIBUTE = re.compile(
    r'^            (\w+): \{\n.*\n\s+isBlock: (\w+),\n\s+type: "(\w+)",\n\s+storageClassType: "(\w+)"', re.M
)
STRUCT_ATTRIBUTE = re.compile(ATTRIBUTE.pattern.replace("^            ", "^        "), re.M)
COMPUTED = re.compile(r"// (\w+) - computed: true, optional: false, required: false\n.*\n.*this\.get(\w+?)Attribute\(")
FIELD = re.compile(r"^    readonly (\w+)(\??): ", re.M)


def kind(collection, storage):
    if collection == "simple":
        return SIMPLE[storage]
    return [collection, SIMPLE[re.sub("(Map|List)$", "", storage)]]


def members(text, keyword):
    """Returns the text of each class or interface by its name."""
    parts = re.split(rf"^(?:export )?{keyword} (\w+)", text, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2]))


def block(source, attributes, fields, outputs):
    js, interfaces, classes = source
    required = {re.sub("[A-Z]", lambda m: "_" + m[0].lower(), n) for n, optional in FIELD.findall(fields) if not optional}
    out = {"attributes": {}, "block_types": {}}
    for name, is_block, collection, storage in attributes:
        if is_block == "false":
            out["attributes"][name] = {"type": kind(collection, storage), "required" if name in required else "optional": True}
            continue
        struct = storage.removesuffix("List")
        function = struct[0].lower() + struct[1:] + "ToHclTerraform"
        body = re.search(rf"^function {function}\(struct\) \{{.*?^\}}", js, re.M | re.S)
        nested = block(source, STRUCT_ATTRIBUTE.findall(body[0]), interfaces[struct], classes[struct + "OutputReference"])
        out["block_types"][name] = {"nesting_mode": "single" if collection == "struct" else collection, "block": nested}
        if collection == "list" and re.search(rf'new {struct}OutputReference\(this, "{name}"\)', js):
            out["block_types"][name]["max_items"] = 1
        if name in required:
            out["block_types"][name]["min_items"] = 1
    for name, getter in COMPUTED.findall(outputs):  # only the provider sets them
        if getter in GETTERS:
            out["attributes"].setdefault(name, {"type": GETTERS[getter], "computed": True})
    return out


def schema(archive, folder):
    js, declarations = (archive.extractfile(f"package/lib/{folder}/index.{e}").read().decode() for e in ("js", "d.ts"))
    interfaces, classes = members(declarations, "interface"), members(js, "class")
    main = re.findall(r"^class (\w+) extends cdktf\.Terraform(?:Resource|DataSource)", js, re.M)[0]
    own = ATTRIBUTE.findall(js[js.rindex("synthesizeHclAttributes()"):])
    out = block((js, interfaces, classes), own, interfaces[main + "Config"], classes[main])
    for name, attribute in out["attributes"].items():  # the package does not say which optional ones have a default
        if name == "id" or folder.startswith("data-") and attribute.get("optional"):
            attribute["computed"] = True
    return {"block": out}


def main():
    with tarfile.open(sys.argv[1]) as archive:
        out = {
            "resource_schemas": {f"aws_{r}": schema(archive, r.replace("_", "-")) for r in RESOURCES},
            "data_source_schemas": {f"aws_{d}": schema(archive, "data-aws-" + d.replace("_", "-")) for d in DATA},
        }
    path = pathlib.Path(__file__).with_name("provider") / "schema.json"
    path.write_text(json.dumps(out, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
