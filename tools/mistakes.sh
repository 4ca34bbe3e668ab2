#!/usr/bin/env bash
# Builds councild and repeats the mistakes of new users with it, against a simulated
# provider on this machine. It prints each command with its output and its exit code. It
# fails if a message does not name the problem and then the remedy, in at most 200
# characters.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
go build -o "$dir/councild" ./cmd/councild
passed=true
COUNCILD_BINARY=$dir/councild go test -count=1 -run '^TestMistakes$' -v ./cmd/councild >"$dir/log" 2>&1 || passed=false
grep -vE '^(=== |PASS|ok )|^ *--- PASS' "$dir/log" | sed -E 's/^ +mistakes_test\.go:[0-9]+: /\n/; s/^ {8}//'
$passed
