#!/usr/bin/env bash
# Checks the workflows with actionlint, and the shell scripts with shellcheck. actionlint also checks the scripts inside
# workflows, if shellcheck is installed. Without shellcheck, the script says so and checks the workflows alone.
set -euo pipefail
cd "$(dirname "$0")/.."
# actionlint looks for .git to find the workflows, so they are named here.
go tool -modfile=tools/actionlint/go.mod actionlint .github/workflows/*.yml
if command -v shellcheck >/dev/null; then
	shellcheck .ci/run gate/*.sh tools/*.sh tools/dist/scripts/*.sh
else
	echo "NOT CHECKED with shellcheck, which is not installed: the scripts in .ci, gate, tools and workflows" >&2
fi
