#!/usr/bin/env bash
# Reviews the change between BASE and HEAD with councild gate. It writes the report to the summary of the job, the
# annotations to the log, and the verdict and the paths of the files to the outputs of the step. Output code is the exit
# code that the job should have, so that later steps can still publish the report.
set -euo pipefail
dir=$(mktemp -d "${RUNNER_TEMP:-/tmp}/councild-gate.XXXXXX")
report=$dir/report.md

# output NAME VALUE sets an output of the step.
output() { printf '%s=%s\n' "$1" "$2" >>"$GITHUB_OUTPUT"; }

# finish VERDICT TEXT ends a job in which nothing was asked.
finish() {
	printf '**councild gate: %s**\n\n%s\n' "$1" "$2" >"$report"
	cat "$report" >>"$GITHUB_STEP_SUMMARY"
	output verdict "$1"
	output report "$report"
	output shown 0
	local code=0
	case ",${FAIL_ON// /}," in *",$1,"*) code=3 ;; esac
	output code "$code"
	exit 0
}

if [ -z "${LLM_COUNCIL_API_TOKENS:-}" ]; then
	finish undecided "This job has no token of the daemon, as in a pull request from a fork. Nothing was asked."
fi
# Without a work tree and an index, git reads no .gitattributes. With its own attributes, a change could call its files
# binary and so hide them.
mkdir "$dir/empty"
git_dir=$(git rev-parse --absolute-git-dir)
if ! GIT_INDEX_FILE="$dir/index" git -C "$dir/empty" --git-dir="$git_dir" --work-tree="$dir/empty" \
	diff --no-color --no-ext-diff --no-textconv "$BASE...HEAD" >"$dir/change.diff"; then
	echo "The change cannot be read: check out with fetch-depth: 0." >&2
	exit 1
fi
if [ ! -s "$dir/change.diff" ]; then
	finish pass "The change has no lines. Nothing was asked."
fi
jq -r '.pull_request | "\(.title // "")\n\n\(.body // "")"' "$GITHUB_EVENT_PATH" >"$dir/description.txt"
head -c 16000 "$dir/description.txt" >"$dir/context.txt"

args=(gate --server "$SERVER" --diff "$dir/change.diff" --context "$dir/context.txt")
args+=(--format github --out "$report" --sarif "$dir/gate.sarif" --fail-on "$FAIL_ON")
[ -z "$COUNCIL" ] || args+=(--council "$COUNCIL")
[ -z "$MAX_COST_USD" ] || args+=(--max-cost-usd "$MAX_COST_USD")
# The file comes from BASE: a change must not accept its own findings.
if [ -n "$IGNORE" ] && git show "$BASE:$IGNORE" >"$dir/ignore.txt"; then
	args+=(--ignore "$dir/ignore.txt")
fi

# What councild writes to standard error may quote a model. The runner must not take a line of it for a command.
pause=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
echo "::stop-commands::$pause"
code=0
"$BINARY" "${args[@]}" >"$dir/annotations" || code=$?
echo "::$pause::"
if [ "$code" != 0 ] && [ "$code" != 3 ]; then
	exit "$code"
fi
cat "$dir/annotations"
cat "$report" >>"$GITHUB_STEP_SUMMARY"
verdict=$(sed -n '1s/^\*\*councild gate: \([a-z]*\)\*\*.*/\1/p' "$report")
output verdict "$verdict"
output report "$report"
# Code scanning closes alerts that an upload lacks. A review without a verdict must close none.
[ "$verdict" = undecided ] || output sarif "$dir/gate.sarif"
output shown "$(jq '[.runs[].results[]] | length' "$dir/gate.sarif")"
output code "$code"
