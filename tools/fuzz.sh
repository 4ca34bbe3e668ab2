#!/usr/bin/env bash
# Fuzzes every target of the repository, each for the time given (default 10s).
# Up to Go 1.26 a run can end with "context deadline exceeded" and nothing found,
# when its time is over in the middle of an input (go.dev/issue/75804): that alone
# is no failure. By default Go spends up to a minute on making each interesting
# input smaller, which where goroutines take part is most of the time.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-10s}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
targets=0
while IFS=: read -r file target; do
	echo "fuzz $target in $(dirname "$file")"
	targets=$((targets + 1))
	go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 100x "./$(dirname "$file")" >"$log" 2>&1 &&
		tail -n 1 "$log" && continue
	if grep -q 'context deadline exceeded' "$log" && ! grep -qE 'Failing input|panic:|_test\.go:' "$log"; then
		echo "nothing found; the time was over in the middle of an input"
		continue
	fi
	cat "$log" >&2
	exit 1
done < <(grep -rhoE --with-filename '^func Fuzz[A-Za-z0-9]+' --include='*_test.go' internal | sed 's/:func /:/' | sort)
[ "$targets" -gt 0 ] || { echo "no fuzz target was found" >&2; exit 1; }
