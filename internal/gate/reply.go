package gate

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/llm/thinking"
)

// Limits of replies, in bytes. Longer replies are not read, and longer texts are cut.
const (
	maxReply    = 1 << 20
	maxQuote    = 4000
	maxWhat     = 400
	maxScenario = 800
	maxWhy      = 400
)

// finding is one finding of one member.
type finding struct {
	seat           string
	file           *file
	place          place
	severity       Severity
	what, scenario string
	words          map[string]bool // the words of what
}

// Reasons in Report.Dropped.
const (
	droppedQuote = "quote"
	droppedForm  = "form"
	droppedLimit = "limit"
)

// readObject finds the JSON object in a reply that has the member key, and stores it in object. There may be text
// around it. If several objects begin with this member, the last one counts. The time is linear in the length of the
// reply.
func readObject(text, key string, object any) bool {
	if len(text) > maxReply {
		return false
	}
	text = thinking.Outside(thinking.Split(text).Answer)
	for _, from := range []int{lastObject(text, key), strings.IndexByte(text, '{')} {
		var members map[string]json.RawMessage
		if from < 0 || json.NewDecoder(strings.NewReader(text[from:])).Decode(&members) != nil || members[key] == nil {
			continue
		}
		data, _ := json.Marshal(members) // it was decoded just now
		if json.Unmarshal(data, object) == nil {
			return true
		}
	}
	return false
}

// lastObject returns where the last object begins that has key as its first member, or -1.
func lastObject(text, key string) int {
	i := strings.LastIndex(text, `"`+key+`"`)
	before := strings.TrimRight(text[:max(i, 0)], " \t\r\n")
	if !strings.HasSuffix(before, "{") {
		return -1
	}
	return len(before) - 1
}

// unreadable is the failure of a seat whose reply has no findings or votes.
func unreadable(what string) *council.Failure {
	return &council.Failure{Code: council.FailInvalidOutput, Message: "the reply holds no " + what}
}

// readFindings reads the reply of a member. It counts in dropped what it does not use. It returns false if the reply
// cannot be read.
func (c *change) readFindings(seat, text string, dropped map[string]int) (found []*finding, ok bool) {
	var reply struct {
		Findings []json.RawMessage `json:"findings"`
	}
	if !readObject(text, "findings", &reply) || reply.Findings == nil {
		return nil, false
	}
	for i, item := range reply.Findings {
		if i >= MaxFound {
			dropped[droppedLimit] += len(reply.Findings) - MaxFound
			break
		}
		if f, why := c.readFinding(seat, item); f != nil {
			found = append(found, f)
		} else {
			dropped[why]++
		}
	}
	return found, true
}

// readFinding reads one finding. It returns nil and a reason if the finding cannot be used.
func (c *change) readFinding(seat string, item json.RawMessage) (f *finding, why string) {
	var in struct {
		File     string          `json:"file"`
		Line     json.RawMessage `json:"line"`
		Quote    string          `json:"quote"`
		Severity string          `json:"severity"`
		What     string          `json:"what"`
		Scenario string          `json:"scenario"`
	}
	if json.Unmarshal(item, &in) != nil {
		return nil, droppedForm
	}
	f = &finding{
		seat: seat, severity: readSeverity(in.Severity), what: clean(in.What, maxWhat),
		scenario: clean(in.Scenario, maxScenario),
	}
	if f.what == "" {
		return nil, droppedForm
	}
	number, _ := strconv.ParseFloat(strings.Trim(string(in.Line), `"`), 64) // Without a number, the line is 0.
	var ok bool
	if f.file, f.place, ok = c.locate(in.File, in.Quote, int(min(max(number, 0), 1e9))); !ok {
		return nil, droppedQuote
	}
	f.words = wordsOf(f.what)
	return f, ""
}

// readSeverity returns Advisory for every word but "blocking".
func readSeverity(word string) Severity {
	if strings.EqualFold(strings.TrimSpace(word), string(Blocking)) {
		return Blocking
	}
	return Advisory
}

// Stance is the vote of one reviewer on one finding.
type Stance string

// The votes.
const (
	Confirm Stance = "confirm"
	Reject  Stance = "reject"
	Unsure  Stance = "unsure"
)

// ballot has the votes of one reviewer.
type ballot struct {
	seat  string
	shown map[string]bool // the ids that it was shown
	votes map[string]Vote // by id. An id that was shown and has no vote is missing.
	same  [][]string
}

// readBallot reads the reply of a reviewer that was shown the findings with these ids. It returns false if the reply
// holds no vote on any of them.
func readBallot(seat, text string, shown map[string]bool) (ballot, bool) {
	b := ballot{seat: seat, shown: shown, votes: map[string]Vote{}}
	var reply struct {
		Votes []json.RawMessage `json:"votes"`
		Same  json.RawMessage   `json:"same"`
	}
	if !readObject(text, "votes", &reply) {
		return b, false
	}
	for _, item := range reply.Votes {
		var in struct{ Finding, Vote, Severity, Why string }
		id, stance := "", Stance("")
		if json.Unmarshal(item, &in) == nil {
			id = strings.TrimSpace(in.Finding)
			stance = Stance(strings.ToLower(strings.TrimSpace(in.Vote)))
		}
		if shown[id] && (stance == Confirm || stance == Reject || stance == Unsure) {
			b.votes[id] = Vote{Seat: seat, Vote: stance, Severity: readSeverity(in.Severity), Why: clean(in.Why, maxWhy)}
		}
	}
	b.same = readSame(reply.Same, shown)
	return b, len(b.votes) > 0
}

// maxSame is how many lists of same findings of one reviewer are used.
const maxSame = 50

// readSame reads the lists of findings that are the same. If the text is not a list of lists, it returns none.
func readSame(text json.RawMessage, shown map[string]bool) (same [][]string) {
	var lists [][]string
	_ = json.Unmarshal(text, &lists)
	for _, list := range lists[:min(len(lists), maxSame)] {
		var known []string
		for _, id := range list {
			if shown[id] && !slices.Contains(known, id) {
				known = append(known, id)
			}
		}
		same = append(same, known)
	}
	return same
}

// clean returns a text on one line, without control characters and other characters that change how a text is shown,
// and with at most n bytes.
func clean(text string, n int) string {
	var b strings.Builder
	blank := false
	for _, r := range text {
		if b.Len()+8 > n { // A blank, the longest character and the ellipsis have 8 bytes together.
			return b.String() + "…"
		}
		if unicode.IsSpace(r) || !unicode.IsPrint(r) {
			blank = b.Len() > 0
			continue
		}
		if blank {
			b.WriteByte(' ')
			blank = false
		}
		b.WriteRune(r)
	}
	return b.String()
}
