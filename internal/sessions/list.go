package sessions

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/sessions/journal"
)

// listed returns what a list of sessions shows of a plan.
func listed(plan council.Plan) journal.Head {
	return journal.Head{
		Created:     plan.Created,
		Query:       plan.Preview(),
		Council:     plan.Council(),
		CouncilName: plan.CouncilLabel(),
		Turn:        plan.Turn,
		Asked:       asked(plan.Conversation),
	}
}

// summary returns a session as a list shows it.
func summary(id string, head journal.Head) council.Summary {
	return council.Summary{
		ID:         id,
		Status:     head.Status,
		Created:    head.Created,
		Query:      head.Query,
		Title:      cmp.Or(head.Title, head.Query),
		Answer:     head.Answer,
		Council:    head.CouncilName,
		CostUSD:    head.CostUSD,
		DurationMS: took(head.Timing),
		Thread:     cmp.Or(head.Thread, id),
		Earlier:    head.Earlier,
	}
}

// took returns how long a session took, in milliseconds, or nil if that is not known.
func took(t council.Timing) *float64 {
	if t.TotalMS == 0 {
		return nil
	}
	return &t.TotalMS
}

// List returns the owner's sessions, the newest first.
func (st *Store) List(owner Owner) []council.Summary {
	list := []council.Summary{}
	here := map[string]int{} // index in list
	for _, s := range st.all() {
		if s.key.owner == owner && !s.side {
			here[s.ID] = len(list)
			list = append(list, s.Summary())
		}
	}
	for _, row := range st.rows(owner) {
		if i, ok := here[row.Session]; !ok {
			list = append(list, summary(row.Session, row.Head))
		} else { // Another node may have renamed the session.
			list[i].Title = cmp.Or(row.Title, list[i].Query)
		}
	}
	slices.SortFunc(list, func(a, b council.Summary) int {
		return cmp.Or(b.Created.Compare(a.Created), strings.Compare(b.ID, a.ID))
	})
	return list
}

// rows returns the owner's sessions in the journal.
func (st *Store) rows(owner Owner) []*journal.IndexRow {
	if st.o.Journal == nil {
		return nil
	}
	return st.o.Journal.Rows(string(owner))
}

// asked returns a hash of the questions in a conversation, or "" if there are none. The hash ignores the answers,
// because a client may send them back in another form, and the instructions, which a chat program may change.
func asked(conversation []council.Message) string {
	hash := sha256.New()
	questions := 0
	for _, m := range conversation {
		if m.Role == council.RoleUser {
			text := strings.TrimSpace(m.Content)
			_, _ = fmt.Fprintf(hash, "%d\n%s", len(text), text)
			questions++
		}
	}
	if questions == 0 {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(hash.Sum(nil)[:16])
}

// maxTwins is how many answers Turn reads at most.
const maxTwins = 8

// Turn returns which conversation a plan continues. A client that asks a follow-up question sends the earlier questions
// and answers with it. The plan therefore continues a session of the owner with the same questions, if the last answer
// that the client sends begins with the same line. If there are several such sessions, it continues the newest one with
// the whole answer, or else the newest one.
func (st *Store) Turn(ctx context.Context, owner Owner, plan council.Plan) council.Turn {
	c := plan.Conversation
	last := len(c) - 1
	for last >= 0 && c[last].Role != council.RoleAssistant {
		last--
	}
	var earlier func(row *journal.IndexRow) bool
	sent := ""
	switch {
	case plan.Side:
		return council.Turn{}
	case plan.GivenFrom != "":
		earlier = func(row *journal.IndexRow) bool { return row.Session == plan.GivenFrom }
	case last > 0:
		sent = strings.TrimSpace(c[last].Content)
		questions := asked(c[:last])
		line := council.FirstLine(sent)
		earlier = func(row *journal.IndexRow) bool {
			return questions != "" && row.Asked == questions && line != "" && row.Answer == line
		}
	default:
		return council.Turn{}
	}
	found := st.headers(owner, earlier)
	if len(found) == 0 {
		return council.Turn{}
	}
	slices.SortFunc(found, func(a, b *journal.IndexRow) int { return b.Created.Compare(a.Created) })
	turn := found[0]
	for _, row := range found[:min(len(found), maxTwins)] {
		if len(found) == 1 {
			break
		}
		answer, err := st.Answer(ctx, owner, row.Session)
		if err == nil && answer != "" && strings.HasPrefix(sent, strings.TrimSpace(answer)) {
			turn = row
			break
		}
	}
	return council.Turn{Earlier: turn.Session, Thread: cmp.Or(turn.Thread, turn.Session)}
}

// headers returns what lists show of the owner's sessions for which wanted returns true. A session that is in memory and
// in the journal may be in the result twice.
func (st *Store) headers(owner Owner, wanted func(*journal.IndexRow) bool) (all []*journal.IndexRow) {
	for _, s := range st.all() {
		if s.key.owner == owner && !s.side {
			s.mu.Lock()
			row := &journal.IndexRow{ID: journal.ID{Owner: string(owner), Session: s.ID}, Head: s.listed}
			row.Answer = s.line
			s.mu.Unlock()
			all = append(all, row)
		}
	}
	return slices.DeleteFunc(append(all, st.rows(owner)...), func(row *journal.IndexRow) bool { return !wanted(row) })
}

// Answer returns the final answer of a session, or "" if it has none. It reads a kept session from the journal, and
// keeps nothing of it in memory. The error says that the journal cannot be read now.
func (st *Store) Answer(ctx context.Context, owner Owner, id string) (string, error) {
	st.mu.Lock()
	s := st.sessions[id]
	st.mu.Unlock()
	if s != nil && s.key.owner == owner {
		s.mu.Lock()
		body := s.body
		s.mu.Unlock()
		return answerIn(body), nil
	}
	if st.o.Journal == nil {
		return "", nil
	}
	kept := journal.ID{Owner: string(owner), Session: id}
	last, err := st.o.Journal.Last(ctx, kept)
	end := last
	if last != nil && !ends(*last) { // The message has several parts, or gives the session a title.
		var log []journal.Stored
		log, err = st.o.Journal.Read(ctx, kept)
		if i := slices.IndexFunc(log, ends); i >= 0 {
			end = &log[i]
		}
	}
	if errors.Is(err, journal.ErrUnavailable) {
		return "", unavailable(err, "the kept sessions cannot be searched now: try again later")
	}
	if end == nil || !ends(*end) {
		return "", nil
	}
	return answerIn(end.Entries[len(end.Entries)-1].Data), nil
}

// answerIn returns the final answer in the JSON of a session. It returns "" for the JSON of a failure, and if there is
// no JSON.
func answerIn(body []byte) string {
	var session struct{ Answer string }
	_ = json.Unmarshal(body, &session)
	return session.Answer
}

// ErrRuns is the error of Rename for a session that has not ended.
var ErrRuns = errors.New("the session still runs")

// renameAttempts is how often Rename tries to append. A try fails if another node renames the session at the same time.
const renameAttempts = 5

// Rename gives a title to a session that has ended. If the journal has the session, the title is stored there before
// Rename returns. The log gets a message without entries, whose head has the title. Daemons of older versions can read
// such a log. The session then counts as having ended now, so it is kept for longer.
func (st *Store) Rename(ctx context.Context, s *Session, title string) (council.Summary, error) {
	st.renaming.Lock() // A process must not append twice to the same log at the same time.
	defer st.renaming.Unlock()
	if s.Summary().Status == council.StatusRunning {
		return council.Summary{}, ErrRuns
	}
	if s.keeper == nil && st.o.Lease > 0 { // Its end may still wait to be stored.
		ctx, cancel := context.WithTimeout(ctx, st.o.Waits.Append)
		defer cancel()
		if err := st.storedLast(ctx); err != nil {
			return council.Summary{}, err
		}
	}
	if st.o.Journal != nil {
		id := journal.ID{Owner: string(s.key.owner), Session: s.ID}
		if err := st.storeTitle(ctx, id, title); err != nil {
			return council.Summary{}, err
		}
	}
	s.mu.Lock()
	s.title = title
	s.mu.Unlock()
	return s.Summary(), nil
}

// storeTitle appends the title of a session to its log, if there is a log.
func (st *Store) storeTitle(ctx context.Context, id journal.ID, title string) error {
	for attempt := 1; ; attempt++ {
		last, err := st.o.Journal.Last(ctx, id)
		if last == nil || err != nil {
			if errors.Is(err, journal.ErrGone) {
				return nil
			}
			return err
		}
		if last.Status == council.StatusRunning {
			return ErrRuns
		}
		m := journal.Message{Head: last.Head, First: last.First + last.Count}
		m.Node = st.o.Node
		m.Title = title
		_, err = st.o.Journal.Append(ctx, id, last.Seq, m)
		if _, moved := errors.AsType[*journal.Moved](err); !moved || attempt == renameAttempts {
			return err
		}
	}
}
