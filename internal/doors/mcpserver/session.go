package mcpserver

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/doors/client"
)

const (
	// joinedFor is a time after the end of a session. If the same question is asked again within it, the caller gets
	// that session. Later, a new session begins.
	joinedFor = 10 * time.Minute
	// beat is the pause between reports of progress while nothing new happens.
	beat = 10 * time.Second
	// endWait is how long to wait for the end of a cancelled session, or for the last event of an ended session.
	endWait = 10 * time.Second
)

// ask is the tool council.
func (s *Server) ask(ctx context.Context, r *mcp.CallToolRequest, in councilArgs) (*mcp.CallToolResult, ToolResult, error) {
	body := council.Submission{
		Background: true, Request: council.Request{
			Query: in.Question, Council: in.Council, Category: in.Category, Mode: in.Mode, First: in.First, AnswerForm: in.AnswerForm,
		},
	}
	if in.MaxCostUSD > 0 {
		body.MaxCostUSD = &in.MaxCostUSD
	}
	started, err := s.begin(ctx, s.daemon.StartOnce, body, in.Fresh)
	if err != nil {
		return nil, ToolResult{}, s.explain(err)
	}
	return s.await(ctx, r, started.ID, in.Wait)
}

// judge is the tool judge.
func (s *Server) judge(ctx context.Context, r *mcp.CallToolRequest, in judgeArgs) (*mcp.CallToolResult, ToolResult, error) {
	body := council.JudgeSubmission{
		Background: true, JudgeRequest: council.JudgeRequest{
			Question: in.Question, Council: in.Council, Orders: in.Orders, Exclude: in.Exclude, Criteria: in.Criteria, Rubric: in.Rubric,
			Category: in.Category,
		},
	}
	for _, a := range in.Answers {
		body.Answers = append(body.Answers, council.JudgeAnswer(a))
	}
	if in.MaxCostUSD > 0 {
		body.MaxCostUSD = &in.MaxCostUSD
	}
	started, err := s.begin(ctx, s.daemon.JudgeOnce, body, in.Fresh)
	if err != nil {
		return nil, ToolResult{}, s.explain(err)
	}
	return s.await(ctx, r, started.ID, in.Wait)
}

// convene is the tool convene. Its Idempotency-Key is made of the id, so that a call that is repeated gets the same
// session again.
func (s *Server) convene(ctx context.Context, r *mcp.CallToolRequest, in resultArgs) (*mcp.CallToolResult, ToolResult, error) {
	started, err := s.daemon.ConveneOnce(ctx, "mcp-convene-"+in.ID, in.ID)
	if err != nil {
		return nil, ToolResult{}, s.explain(err)
	}
	return s.await(ctx, r, started.ID, in.Wait)
}

// begin returns a session for a question. It returns an earlier session of the same question if that session runs, or
// ended well within joinedFor. Otherwise, or if fresh is true, it begins a new session. The first session of a question
// has an Idempotency-Key that is derived from the question. The key of each later session is derived from the key and
// the id of the session before it. With these keys the daemon itself finds the last session, on any node and for any
// process, and two calls at once begin only one session. If the daemon no longer keeps a session, the chain of keys
// ends at that session, and the question is asked again. The function start sends the body with a key.
func (s *Server) begin(
	ctx context.Context, start func(ctx context.Context, key string, body any) (council.Summary, error), body any, fresh bool,
) (council.Summary, error) {
	asked, err := json.Marshal(body)
	if err != nil {
		return council.Summary{}, err
	}
	key := sha256.Sum256(asked)
	if fresh {
		key = sha256.Sum256(append(asked, rand.Text()...))
	}
	for {
		started, err := start(ctx, "mcp-"+hex.EncodeToString(key[:]), body)
		if err != nil || joins(started) {
			return started, err
		}
		key = sha256.Sum256(append(key[:], started.ID...))
	}
}

// joins reports whether a session is also the answer if its question is asked again.
func joins(s council.Summary) bool {
	switch s.Status {
	case council.StatusRunning:
		return true
	case council.StatusComplete, council.StatusDegraded:
		end := s.Created
		if s.DurationMS != nil {
			end = end.Add(time.Duration(*s.DurationMS * float64(time.Millisecond)))
		}
		return time.Since(end) < joinedFor
	default:
		return false
	}
}

// await waits at most the given number of seconds for the end of a session. Then it returns the session with what is
// known so far.
func (s *Server) await(
	ctx context.Context, r *mcp.CallToolRequest, id string, seconds int,
) (*mcp.CallToolResult, ToolResult, error) {
	known, err := s.daemon.Session(ctx, id)
	if err != nil {
		return nil, ToolResult{}, s.explain(err)
	}
	if known.Status != council.StatusRunning {
		return s.ended(ctx, known)
	}
	if call := callOf(ctx); call != nil {
		call.running = known
		seconds = 0
	}
	if seconds == 0 {
		return returned(known)
	}
	p := s.report(ctx, r, id)
	defer p.stop()
	return s.watch(ctx, id, time.Duration(seconds)*time.Second, p)
}

// ended returns the result of a session that has ended. If the session has no answer, the result says why.
func (s *Server) ended(ctx context.Context, known *council.Session) (*mcp.CallToolResult, ToolResult, error) {
	if known.Status == council.StatusComplete || known.Status == council.StatusDegraded {
		return returned(known)
	}
	return s.watch(ctx, known.ID, endWait, council.ObserverFunc(func(council.Event) {}))
}

// watch passes the events of a session to an observer until the session ends, or the wait is over. Then it returns the
// session with what is known so far.
func (s *Server) watch(
	ctx context.Context, id string, wait time.Duration, observer council.Observer,
) (*mcp.CallToolResult, ToolResult, error) {
	watching, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	go func() {
		select {
		case <-s.stopped:
			cancel()
		case <-watching.Done():
		}
	}()
	ended, failure := s.daemon.Watch(watching, id, observer)
	if ended != nil {
		return returned(ended)
	}
	if ctx.Err() != nil {
		return nil, ToolResult{}, context.Cause(ctx)
	}
	// The wait is over, or the session has no answer, or it can no longer be watched.
	known, err := s.daemon.Session(ctx, id)
	if err != nil {
		return nil, ToolResult{}, s.explain(err)
	}
	result := resultOf(known)
	shown := toolResult(result)
	if failed, ok := errors.AsType[*client.Error](failure); ok && known.Status != council.StatusRunning {
		shown.IsError = true
		shown.Content = append([]mcp.Content{&mcp.TextContent{Text: s.explain(failed).Error()}}, shown.Content...)
	}
	return shown, result, nil
}

func returned(s *council.Session) (*mcp.CallToolResult, ToolResult, error) {
	result := resultOf(s)
	return toolResult(result), result, nil
}

// cancel is the tool council_cancel.
func (s *Server) cancel(
	ctx context.Context, r *mcp.CallToolRequest, in cancelArgs,
) (*mcp.CallToolResult, ToolResult, error) {
	known, err := s.daemon.Session(ctx, in.ID)
	if err == nil && known.Status == council.StatusRunning { // Delete would delete an ended session.
		_, err = s.daemon.Delete(ctx, in.ID)
	}
	if err != nil {
		return nil, ToolResult{}, s.explain(err)
	}
	shown, result, err := s.await(ctx, r, in.ID, int(endWait/time.Second))
	if err == nil && result.Status == council.StatusCancelled {
		shown.IsError = false
	}
	return shown, result, err
}

// progress reports the progress of a session to the client that waits for the session. Each report has a larger number
// than the report before it. The number is how many calls have ended, plus a fraction for the next call.
type progress struct {
	tell func(done, total float64, message string)
	stop func() // ends the reports

	mu      sync.Mutex // guards all fields below
	id      string     // of the session
	begun   time.Time
	members int
	voters  int
	judging bool // set if judges read answers that were given
	writer  int  // 1 if a chairman writes, otherwise 0
	answers int
	ballots int
	landed  int // calls that have ended
	beats   int // reports since a call ended
}

// report begins to report the progress of a session. If the client sent no progress token, nothing is reported.
func (s *Server) report(ctx context.Context, r *mcp.CallToolRequest, id string) *progress {
	p := &progress{id: id, begun: time.Now(), tell: func(float64, float64, string) {}, stop: func() {}}
	token := r.Params.GetProgressToken()
	if token == nil {
		return p
	}
	p.tell = func(done, total float64, message string) {
		// If this fails, the next report or the result fails too.
		_ = r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
			ProgressToken: token, Progress: done, Total: total, Message: message,
		})
	}
	reporting, cancel := context.WithCancel(ctx)
	var beating sync.WaitGroup
	p.stop = func() {
		cancel()
		beating.Wait()
	}
	beating.Go(func() {
		for ticker := time.NewTicker(beat); ; {
			select {
			case <-ticker.C:
				p.Observe(council.Event{})
			case <-reporting.Done():
				ticker.Stop()
				return
			}
		}
	})
	return p
}

// Observe implements council.Observer.
func (p *progress) Observe(e council.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	landed := p.landed
	switch data := e.Data.(type) {
	case council.AnswerDelta, council.Delta: // About ten such events come each second.
		return
	case council.Started:
		p.members = len(data.Models)
		p.judging = data.Mode == council.ModeJudge
		p.voters = len(data.Reviewers)
		if cmp.Or(data.Mode, council.ModeCouncil).Writes() {
			p.writer = 1
		}
	case council.Answer:
		p.answers++
		if !p.judging { // The answers to judge were given, without calls.
			landed++
		}
	case council.FirstAsked:
		if !data.Convened { // No other call follows.
			p.members = p.answers
			p.voters = 0
			p.writer = 0
		}
	case council.Review:
		p.ballots++
		landed++
	case council.Synthesis:
		landed++
	}
	total := p.totalLocked()
	p.beats++
	if landed > p.landed {
		p.landed = landed
		p.beats = 0
	} else if landed > 0 && landed == total {
		return // Only the end of the session is left.
	}
	part := float64(p.beats) / float64(p.beats+1)
	p.tell(float64(p.landed)+part, float64(total),
		fmt.Sprintf("session %s: %s (%.0f s)", p.id, p.stageLocked(), time.Since(p.begun).Seconds()))
}

// totalLocked returns how many calls the session takes, or 0 if the number is not known yet.
func (p *progress) totalLocked() int {
	switch {
	case p.members == 0:
		return 0
	case p.judging:
		return p.voters
	default:
		return p.members + p.voters + p.writer
	}
}

// stageLocked returns what the session does now.
func (p *progress) stageLocked() string {
	switch {
	case p.writer == 1 && p.landed == p.totalLocked()-1:
		return "the chairman writes the answer"
	case p.ballots > 0 || p.judging:
		return fmt.Sprintf("%d of %d reviewers have ranked the answers", p.ballots, p.voters)
	default:
		return fmt.Sprintf("%d of %d members have answered", p.answers, p.members)
	}
}
