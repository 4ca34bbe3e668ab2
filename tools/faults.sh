#!/usr/bin/env bash
# Runs the test of every fault row (TestFaultF01 and so on, in whichever package)
# and prints what each measured against what is promised. It fails when a row
# fails or has no test.
set -euo pipefail
cd "$(dirname "$0")/.."
log=$(mktemp)
trap 'rm -f "$log"' EXIT
passed=true
go test -count=1 -timeout 30m -run '^TestFault' -v ./... >"$log" 2>&1 || passed=false
awk '
	function row(text) { match(text, /F[0-9][0-9]/); return substr(text, RSTART, RLENGTH) }
	/^--- PASS: TestFaultF[0-9][0-9]/ { tested[row($0)] = 1 }
	/^--- (FAIL|SKIP): TestFaultF[0-9][0-9]/ { tested[row($0)] = 1; failed[row($0)] = 1 }
	/: fault F[0-9][0-9]: / {
		text = substr($0, index($0, ": fault ") + 8)
		measured[row(text)] = measured[row(text)] "\n      " substr(text, 6)
	}
	END {
		for (n = 1; n <= 32; n++) {
			id = sprintf("F%02d", n)
			if (n == 28) continue # there is no such row
			mark = "ok  "
			if (id in failed) mark = "FAIL"
			if (!(id in tested)) mark = "NONE"
			if (mark != "ok  ") bad = 1
			printf "%s  %s%s\n", mark, id, measured[id]
		}
		exit bad
	}
' "$log" || passed=false
if ! $passed; then
	grep -E '^(--- FAIL|FAIL|panic:)|_test\.go:[0-9]+: ' "$log" | grep -v ': fault F' >&2 || true
	exit 1
fi
