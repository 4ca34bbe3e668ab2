#!/usr/bin/env bash
# Builds councild, makes the mistakes of new users with it, against a simulated provider on
# this machine, and prints each command with what is said and the exit code. It fails when a
# message does not name what is wrong and what to type.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
go build -o "$dir/councild" ./cmd/councild
passed=true
COUNCILD_BINARY=$dir/councild go test -count=1 -run '^TestMistakes$' -v ./cmd/councild >"$dir/log" 2>&1 || passed=false
grep -vE '^(=== |PASS|ok )|^ *--- PASS' "$dir/log" | sed -E 's/^ +mistakes_test\.go:[0-9]+: /\n/; s/^ {8}//'
$passed
