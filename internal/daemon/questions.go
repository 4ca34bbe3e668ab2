package daemon

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/councild/councild/internal/sessions/journal"
	"github.com/councild/councild/internal/store"
)

// agreeFor is the longest time that a daemon waits at its start for the cluster to return the secret of question keys.
// A question key is a hash of the question, made with the secret. It shows which records are about the same question.
const agreeFor = 5 * time.Second

// questionName is the name under which the nodes of a cluster share the secret of question keys.
const questionName = "question-secret"

// noQuestionKeys is the log line for a missing secret. Records then have no question keys.
const noQuestionKeys = "records have no question keys, so reports count repeated questions as independent"

// QuestionSecret returns a function that returns the secret for the question keys in the records at path. If the secret
// does not exist yet, QuestionSecret makes it. If the secret cannot be read or made, the log says why, and the function
// returns "".
func QuestionSecret(ctx context.Context, path string, log *slog.Logger) func() string {
	s, err := store.OpenQuestionSecret(ctx, path, log)
	if err != nil {
		log.ErrorContext(ctx, noQuestionKeys, "error", err)
	}
	return func() string { return s.Secret }
}

// questions is the secret of question keys on one node of a cluster.
type questions struct {
	journal *journal.Journal
	path    string // of the records
	log     *slog.Logger
	// own is the secret of this node. A node without a file makes a new one.
	own store.QuestionSecret
	// file says why the file of this node cannot be used, or is nil.
	file   error
	secret atomic.Pointer[string]
}

// shareQuestions returns a function that returns the secret of question keys. All nodes of a cluster share one secret.
// Until a node has the secret of the cluster, it uses the secret in its own file, if there is such a file. Both secrets
// are the same, unless the node joins the cluster for the first time.
func (d *Daemon) shareQuestions(ctx context.Context) func() string {
	if d.store == nil {
		return nil
	}
	if d.journal == nil || !d.journal.Cluster() {
		return QuestionSecret(ctx, d.cfg.BiasStore, d.log)
	}
	q := &questions{journal: d.journal, path: d.cfg.BiasStore, log: d.log}
	switch q.own, q.file = store.OwnQuestionSecret(ctx, q.path, q.log); {
	case q.file == nil:
		q.secret.Store(&q.own.Secret)
	case errors.Is(q.file, fs.ErrNotExist):
		q.own = store.NewQuestionSecret(ctx, q.path)
	default:
		q.log.ErrorContext(ctx, "the node uses the cluster's secret of question keys, not the one in its own "+
			"file", "error", q.file)
	}
	try, cancel := context.WithTimeout(ctx, agreeFor)
	defer cancel()
	if !q.agree(try) {
		d.runBackground(ctx, "the secret of question keys", func(ctx context.Context) {
			for pause(ctx) && !q.agree(ctx) {
			}
		})
	}
	return func() string {
		if s := q.secret.Load(); s != nil {
			return *s
		}
		return ""
	}
}

// agree makes this node use the secret of the cluster. If the cluster has no secret, agree first stores the secret of
// this node there. It returns false if the secret of the cluster is still not known, so that the caller tries again.
func (q *questions) agree(ctx context.Context) bool {
	var mine []byte
	if q.own.Secret != "" {
		mine = q.own.Encode()
	}
	theirs, err := q.journal.Agree(ctx, questionName, mine)
	if err != nil || theirs == nil {
		return false
	}
	agreed, err := store.ParseQuestionSecret(theirs)
	if err != nil {
		q.log.ErrorContext(ctx, "the secret of question keys on the cluster is not used; remove it there, as docs/sessions.md says of "+
			"question keys, and restart all daemons", "error", err)
		return true
	}
	q.secret.Store(&agreed.Secret)
	same := agreed.Secret == q.own.Secret
	switch {
	case q.file == nil && same:
		return true
	case q.file == nil:
		agreed.Anew = true
		q.log.WarnContext(ctx, "the cluster's secret of question keys differs from the one of this node: the node "+
			"cannot tell which of the next sessions repeat its earlier questions", "file", store.QuestionFile(q.path))
	case !errors.Is(q.file, fs.ErrNotExist):
		return true // the file stays as it is until an operator has looked at it
	case same:
		agreed.Tell(ctx, q.path, q.log)
	}
	if err := agreed.Keep(q.path); err != nil {
		q.log.ErrorContext(ctx, "the secret of question keys is only on the cluster", "error", err)
	}
	return true
}
