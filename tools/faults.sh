#!/usr/bin/env bash
# Runs the test of every row of docs/faults.md, in all packages. The test of row F01 is
# TestFaultF01. The script prints the measured result of each row beside its promise. It
# fails if a test fails or a row has no test.
set -euo pipefail
cd "$(dirname "$0")/.."
log=$(mktemp)
trap 'rm -f "$log"' EXIT
passed=true
go test -count=1 -timeout 30m -run '^TestFault' -v ./... >"$log" 2>&1 || passed=false
awk '
	function row(text) { match(text, /F[0-9][0-9]/); return substr(text, RSTART, RLENGTH) }
	/^\| F[0-9][0-9] \|/ { rows[++n] = row($0) }
	/^--- (PASS|FAIL|SKIP): TestFaultF[0-9][0-9]/ { tested[row($0)] = 1; if (!/^--- PASS/) failed[row($0)] = 1 }
	/: fault F[0-9][0-9]: / {
		text = substr($0, index($0, ": fault ") + 8)
		measured[row(text)] = measured[row(text)] "\n      " substr(text, 6)
	}
	END {
		if (n == 0) { print "docs/faults.md has no rows"; exit 1 }
		for (i = 1; i <= n; i++) {
			mark = !(rows[i] in tested) ? "NONE" : rows[i] in failed ? "FAIL" : "ok  "
			if (mark != "ok  ") bad = 1
			printf "%s  %s%s\n", mark, rows[i], measured[rows[i]]
		}
		exit bad
	}
' docs/faults.md "$log" || passed=false
if ! $passed; then
	grep -vE '^(=== |PASS|ok |testing: warning|\? )|^ *--- PASS|: fault F' "$log" >&2 || true # Only the lines that explain the failure are left.
	exit 1
fi
