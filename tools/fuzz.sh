#!/usr/bin/env bash
# Fuzzes every target of the repository, each for the time given (default 10s).
# Each package is built once, and its program runs for one target after the other: go
# test would link it again for each. Up to Go 1.26 a run can end with "context deadline
# exceeded" and nothing found, when its time is over in the middle of an input
# (go.dev/issue/75804): that alone is no failure. By default Go spends up to a minute on
# making each interesting input smaller, which where goroutines take part is most of the
# time.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-10s}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
module=$(go list -m -f '{{.Path}}')
cache=$(go env GOCACHE)/fuzz/$module # where go test keeps the inputs that are interesting
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
