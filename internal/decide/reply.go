package decide

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/councild/councild/internal/llm/thinking"
)

// maxReply is the length in bytes of the longest reply that is read.
const maxReply = 1 << 20

// read returns the place of the vote in the labels of each question, or -1 for a question without a vote. It returns
// false if the reply does not hold the object that was asked for. The object may stand anywhere in the reply. Of
// several objects, the last counts. read works in time linear in the reply.
func read(text string, labels [][]string) (places []int, ok bool) {
	if len(text) > maxReply {
		return nil, false
	}
	text = thinking.Outside(thinking.Split(text).Answer)
	for _, from := range []int{lastObject(text), strings.IndexByte(text, '{')} {
		var members map[string]json.RawMessage
		if from < 0 || json.NewDecoder(strings.NewReader(text[from:])).Decode(&members) != nil {
			continue
		}
		places = make([]int, len(labels))
		for q, some := range labels {
			member, found := members[key(q)]
			ok = ok || found
			places[q] = placeOf(member, some)
		}
		if ok {
			return places, true
		}
	}
	return nil, false
}

// lastObject returns where the last object begins whose first member is about the first question, or -1.
func lastObject(text string) int {
	i := strings.LastIndex(text, `"`+key(0)+`"`)
	before := strings.TrimRight(text[:max(i, 0)], " \t\r\n")
	if !strings.HasSuffix(before, "{") {
		return -1
	}
	return len(before) - 1
}

// placeOf returns the place of a vote in the labels, or -1. The vote is the member's own member "vote", or the member
// itself. It may be true, false or a number without quotes.
func placeOf(member json.RawMessage, labels []string) int {
	var object struct {
		Vote json.RawMessage `json:"vote"`
	}
	if json.Unmarshal(member, &object) == nil && object.Vote != nil {
		member = object.Vote
	}
	var vote string
	if json.Unmarshal(member, &vote) != nil {
		vote = string(member)
	}
	return slices.IndexFunc(labels, func(label string) bool { return plain(label) == plain(vote) })
}
