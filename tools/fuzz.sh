#!/usr/bin/env bash
# Fuzzes every target of the repository, each for the time in $1 (10s by default).
#
# The script builds each package once and runs that program for each target, because
# go test would link it again each time.
#
# Up to Go 1.26 a run can end with "context deadline exceeded" although it found nothing,
# if its time ends in the middle of an input (go.dev/issue/75804). The script does not
# count that as a failure.
#
# By default Go spends up to a minute to make each interesting input smaller. For targets
# with goroutines that would be most of the time, so -test.fuzzminimizetime limits it.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-10s}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
module=$(go list -m -f '{{.Path}}')
cache=$(go env GOCACHE)/fuzz/$module # go test keeps the interesting inputs here.
targets=0 package=
while IFS=: read -r file target; do
	if [ "$package" != "$(dirname "$file")" ]; then
		package=$(dirname "$file")
		go test -c -fuzz . -o "$dir/fuzz.test" "./$package"
	fi
	echo "fuzz $target in $package"
	targets=$((targets + 1))
	(cd "$package" && exec "$dir/fuzz.test" -test.paniconexit0 -test.run '^$' -test.fuzz "^$target\$" -test.fuzztime "$time" \
		-test.fuzzminimizetime 100x -test.fuzzcachedir "$cache/$package") >"$dir/log" 2>&1 &&
		tail -n 2 "$dir/log" | head -n 1 && continue
	if grep -q 'context deadline exceeded' "$dir/log" && ! grep -qE 'Failing input|panic:|_test\.go:' "$dir/log"; then
		echo "nothing found; the time was over in the middle of an input"
		continue
	fi
	cat "$dir/log" >&2
	exit 1
done < <(grep -rhoE --with-filename '^func Fuzz[A-Za-z0-9]+' --include='*_test.go' internal | sed 's/:func /:/' | sort)
[ "$targets" -gt 0 ] || { echo "no fuzz target was found" >&2; exit 1; }
