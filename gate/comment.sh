#!/usr/bin/env bash
# Shows the report in one comment on the pull request. A comment that is there already is edited. If the report shows no
# finding, no new comment is made.
set -euo pipefail
mark='<!-- councild gate -->'
api=$GITHUB_API_URL/repos/$GITHUB_REPOSITORY/issues

# call METHOD URL [FILE] calls GitHub's API.
call() {
	curl --fail --silent --show-error --retry 3 -X "$1" "$2" ${3:+--data-binary "@$3"} \
		-H "Authorization: Bearer $GH_TOKEN" -H 'Accept: application/vnd.github+json' -H 'Content-Type: application/json'
}

# Anyone can write the mark into a comment, so only comments of bots count.
found=
for page in 1 2 3 4 5 6 7 8 9 10; do
	comments=$(call GET "$api/$NUMBER/comments?per_page=100&page=$page")
	found=$(jq -r --arg mark "$mark" \
		'[.[] | select(.user.type == "Bot" and (.body | startswith($mark)))][0].id // empty' <<<"$comments")
	if [ -n "$found" ] || [ "$(jq length <<<"$comments")" -lt 100 ]; then
		break
	fi
done
if [ -z "$found" ] && [ "$SHOWN" = 0 ]; then
	exit 0
fi
body=$(mktemp "${RUNNER_TEMP:-/tmp}/councild-comment.XXXXXX")
# GitHub takes 65,536 characters.
head -c 60000 "$REPORT" | jq -Rs --arg mark "$mark" '{body: ($mark + "\n" + .)}' >"$body"
if [ -n "$found" ]; then
	call PATCH "$api/comments/$found" "$body" >/dev/null
else
	call POST "$api/$NUMBER/comments" "$body" >/dev/null
fi
