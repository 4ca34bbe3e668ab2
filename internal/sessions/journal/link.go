package journal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// keysBytes is the size of the stream of reservations, in bytes. A reservation takes about 300 bytes.
const keysBytes = 64 << 20

// markerLife is how long the mark of a deleted reservation stays in the stream of reservations.
const markerLife = time.Minute

// link is a connection to the engine, with its streams.
type link struct {
	place   string // where the engine is: the addresses of the cluster, or the directory
	conn    *nats.Conn
	engine  *server.Server // nil with a cluster
	said    []string       // what the engine logged while it was opened
	js      jetstream.JetStream
	log     jetstream.Stream
	keys    jetstream.KeyValue
	nodes   jetstream.KeyValue // nil with the engine inside
	records jetstream.Stream   // nil with the engine inside
	max     int64              // size of the stream of logs, in bytes
	try     time.Duration      // how long one operation may take
	purges  *nats.Subscription
	failed  func(error) // called when the engine fails
	// life ends with the link. Its end cancels all operations that wait for an answer.
	life  context.Context
	end   context.CancelFunc
	ready atomic.Bool // set when the streams are open and the index is filled

	mu    sync.Mutex // guards all fields below
	index jetstream.ConsumeContext
	there context.Context // ends when the connection is lost, or when life ends
	lost  context.CancelFunc
}

// within returns a context for one operation. The context also ends when the connection is lost, because the answer
// would not come on the next connection.
func (l *link) within(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, l.try)
	l.mu.Lock()
	there := l.there
	l.mu.Unlock()
	stop := context.AfterFunc(there, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// disconnected is called when the connection is lost. It ends the operations that wait for an answer.
func (l *link) disconnected() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost()
	l.there, l.lost = context.WithCancel(l.life)
}

// feed replaces the consumer that feeds the index.
func (l *link) feed(index jetstream.ConsumeContext) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.index != nil {
		l.index.Stop()
	}
	l.index = index
}

// streamBytes is the size of the stream of logs. It is MaxBytes, plus a quarter of MaxBytes, plus 16 MiB. Sessions are
// purged at MaxBytes, and the rest leaves room for the sessions that run at that time.
func (o Options) streamBytes() int64 { return o.MaxBytes + o.MaxBytes/4 + 16<<20 }

// sessionsName is the name of the stream of logs, after the prefix.
const sessionsName = "SESSIONS"

// stream and bucket return the full name of a stream and of a bucket. Both names begin with the prefix.
func (o Options) stream(name string) string { return strings.ToUpper(o.Prefix) + "_" + name }
func (o Options) bucket(name string) string { return o.Prefix + "_" + name }

// connect opens a link, but not its streams. If connect returns an error, nothing stays open, and nothing was deleted.
func connect(ctx context.Context, o Options, engineLog *engineLog) (_ *link, err error) {
	l := &link{try: 2 * time.Second, failed: func(error) {}}
	l.life, l.end = context.WithCancel(context.WithoutCancel(ctx))
	l.there, l.lost = context.WithCancel(l.life)
	if l.place, err = redacted(o.URL); err != nil && o.URL != "" {
		return nil, err
	}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	options := []nats.Option{
		nats.Name("councild " + o.Node), nats.MaxReconnects(-1), nats.ReconnectBufSize(-1),
		nats.ReconnectWait(250 * time.Millisecond),
		nats.PingInterval(5 * time.Second), nats.MaxPingsOutstanding(2), nats.Timeout(5 * time.Second),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			level := slog.LevelDebug // Until the link is ready, connect returns the error.
			if l.ready.Load() {
				level = slog.LevelWarn
			}
			o.Log.Log(l.life, level, "sessions connection", "error", err)
		}),
		nats.DisconnectErrHandler(func(*nats.Conn, error) { l.disconnected() }),
	}
	if o.URL == "" {
		l.try = 5 * time.Second
		l.place = o.Dir
		if l.engine, err = startEngine(o, engineLog); err != nil {
			return nil, fmt.Errorf("opening the sessions in %s: %w; %s", o.Dir, err, mendDir)
		}
		l.failed = engineLog.failed
		l.said = engineLog.opened()
		options = append(options, nats.InProcessServer(l.engine))
	}
	if o.Creds != "" {
		options = append(options, nats.UserCredentialBytes([]byte(o.Creds)))
	}
	if o.CA != "" {
		options = append(options, nats.RootCAs(o.CA))
	}
	if l.conn, err = nats.Connect(o.URL, options...); err != nil {
		return nil, fmt.Errorf("connecting to %s: %w; %s", l.place, err, mendConnection(err))
	}
	if l.conn.MaxPayload() < minPayload {
		return nil, fmt.Errorf("the max_payload of %s is %d bytes; set it to %d or more",
			l.place, l.conn.MaxPayload(), minPayload)
	}
	if l.js, err = jetstream.New(l.conn); err != nil {
		return nil, err
	}
	return l, nil
}

// mendDir and mendKey say what a user can do if the engine does not open.
const (
	mendDir = "see that this process may write there and that the disk has room; if the files are damaged, move the directory away"
	mendKey = "give the encryption key that it was written with; if it is damaged or not needed any more, move the directory away"
)

// mendConnection says what a user can do if there is no connection to a cluster.
func mendConnection(err error) string {
	switch {
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired),
		errors.Is(err, nats.ErrNkeysNotSupported):
		return "see that the credentials are those of a user of that cluster"
	case strings.Contains(err.Error(), "x509") || strings.Contains(err.Error(), "tls"):
		return "see that the CA is the one that signed the servers' certificates"
	default:
		return "see that the address is right, that the servers run, " +
			"and that the files of credentials and CA can be read"
	}
}

// redacted returns a list of URLs without their passwords. The error does not contain passwords either.
func redacted(urls string) (string, error) {
	list := strings.Split(urls, ",")
	for i, one := range list {
		u, err := url.Parse(strings.TrimSpace(one))
		if err != nil || u.Host == "" {
			return "", errors.New("the address of the cluster cannot be read; " +
				"write it as nats://host:4222, several with commas between")
		}
		list[i] = u.Redacted()
	}
	return strings.Join(list, ","), nil
}

// open opens the streams, and creates those that are missing.
func (l *link) open(ctx context.Context, o Options) (err error) {
	replicas := 1
	if o.URL != "" {
		replicas = o.Replicas
	}
	l.max = o.streamBytes()
	l.log, err = l.stream(ctx, o, jetstream.StreamConfig{
		Name: o.stream(sessionsName), Subjects: []string{o.Prefix + ".session.*.*"}, Replicas: replicas,
		Discard: jetstream.DiscardNew, MaxBytes: l.max, AllowRollup: true, AllowMsgTTL: true, // for the marks
	})
	if err != nil {
		return err
	}
	keyValue := func(bucket string, c jetstream.StreamConfig) (jetstream.KeyValue, error) {
		c.Name = "KV_" + bucket
		c.Subjects = []string{"$KV." + bucket + ".>"}
		c.Replicas = replicas
		c.MaxMsgsPerSubject = 1
		c.Discard = jetstream.DiscardNew
		c.DenyDelete = true
		c.AllowRollup = true
		c.AllowMsgTTL = true
		c.SubjectDeleteMarkerTTL = markerLife
		if _, err := l.stream(ctx, o, c); err != nil {
			return nil, err
		}
		return l.js.KeyValue(ctx, bucket)
	}
	if l.keys, err = keyValue(o.bucket("keys"), jetstream.StreamConfig{MaxBytes: keysBytes}); err != nil ||
		o.URL == "" {
		return err
	}
	if l.nodes, err = keyValue(o.bucket("nodes"), jetstream.StreamConfig{MaxAge: 3 * o.Lease}); err != nil {
		return err
	}
	l.records, err = l.stream(ctx, o, jetstream.StreamConfig{
		Name: o.stream("RECORDS"), Subjects: []string{o.Prefix + ".records.*"}, Replicas: replicas,
		Discard: jetstream.DiscardNew, MaxAge: o.RecordsFor,
	})
	return err
}

// mismatch returns an error if a stream differs from the wanted one in a setting that cannot be changed.
func mismatch(has, want jetstream.StreamConfig) error {
	differs := func(what string, is, wanted any) error {
		return fmt.Errorf("the stream %s has %s %v instead of %v; "+
			"set these as the stream has them, use another prefix, or delete the stream",
			want.Name, what, is, wanted)
	}
	switch {
	case !slices.Equal(has.Subjects, want.Subjects):
		return differs("the subjects", has.Subjects, want.Subjects)
	case has.Storage != want.Storage:
		return differs("the storage", has.Storage, want.Storage)
	case has.Replicas != want.Replicas:
		return differs("replicas:", has.Replicas, want.Replicas)
	case has.Retention != want.Retention:
		return differs("the retention", has.Retention, want.Retention)
	default:
		return nil
	}
}

// stream opens a stream, or creates it if it is missing. If the settings of a stream differ from the argument want and
// can be changed, stream changes the settings.
func (l *link) stream(ctx context.Context, o Options, want jetstream.StreamConfig) (jetstream.Stream, error) {
	want.Storage = jetstream.FileStorage
	want.MaxMsgs = -1
	want.MaxConsumers = -1
	want.MaxMsgSize = -1
	if want.MaxMsgsPerSubject == 0 {
		want.MaxMsgsPerSubject = -1
	}
	want.MaxBytes = cmp.Or(want.MaxBytes, -1)
	s, err := l.js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if o.URL == "" && hasStream(o.Dir, want.Name) && !setAside(o, want.Name, l.said) {
			return nil, fmt.Errorf("the engine cannot read what is stored there as %s; %s", want.Name, mendKey)
		}
		if s, err = l.js.CreateStream(ctx, want); errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			s, err = l.js.Stream(ctx, want.Name) // Another node was faster, with other settings.
		}
	}
	if err != nil {
		return nil, fmt.Errorf("opening the stream %s: %w%s", want.Name, err, mendStream(err))
	}
	has := s.CachedInfo().Config
	if err := mismatch(has, want); err != nil {
		return nil, err
	}
	changed := has
	changed.Discard = want.Discard
	changed.MaxBytes = want.MaxBytes
	changed.MaxAge = want.MaxAge
	changed.MaxMsgs = want.MaxMsgs
	changed.MaxMsgsPerSubject = want.MaxMsgsPerSubject
	changed.MaxMsgSize = want.MaxMsgSize
	changed.AllowDirect = want.AllowDirect
	changed.AllowRollup = want.AllowRollup
	changed.AllowMsgTTL = has.AllowMsgTTL || want.AllowMsgTTL // Once set, it cannot be unset.
	if changed.MaxAge > 0 {
		changed.Duplicates = min(changed.Duplicates, changed.MaxAge)
	}
	if !reflect.DeepEqual(changed, has) {
		if s, err = l.js.UpdateStream(ctx, changed); err != nil {
			return nil, fmt.Errorf("changing the settings of the stream %s: %w%s", want.Name, err, mendStream(err))
		}
	}
	return s, nil
}

// forbidden returns an error if the servers said that the user lacks a permission. Servers do not answer a request that
// is not permitted.
func (l *link) forbidden() error {
	if err := l.conn.LastError(); errors.Is(err, nats.ErrPermissionViolation) {
		return fmt.Errorf("%w; allow the user what JetStream needs", err)
	}
	return nil
}

// notReady reports whether the error comes from a cluster whose servers are starting or electing a leader. Such servers
// refuse requests, do not answer, or know too few other servers to place a stream. If the servers lack room or a tag
// for a stream, notReady returns false, because waiting does not help then.
func (l *link) notReady(err error) bool {
	if l.engine != nil || l.forbidden() != nil {
		return false
	}
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		return api.ErrorCode == codeNoLeader || api.ErrorCode == codeNoServers ||
			// Another node has just made the stream, and this server does not know it yet.
			api.ErrorCode == jetstream.JSErrCodeStreamNotFound ||
			api.ErrorCode == codeNoPeers && !strings.Contains(api.Description, "storage") &&
				!strings.Contains(api.Description, "tag")
	}
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout) ||
		errors.Is(err, jetstream.ErrBucketNotFound) // the stream of a bucket is not found
}

// mendStream says what a user can do about a stream that does not open. The text begins with a semicolon, or is "" if
// there is no advice.
func mendStream(err error) string {
	var api *jetstream.APIError
	switch {
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return "; enable JetStream in the servers and in the account"
	case errors.As(err, &api) && (api.ErrorCode == codeNoPeers || api.ErrorCode == codeNoReplicas):
		return "; run at least as many servers as replicas, or set fewer replicas"
	case errors.As(err, &api) && (api.ErrorCode == codeNoMemory || api.ErrorCode == codeNoStorage || api.ErrorCode == codeExceeded):
		return "; give the account more storage, or keep fewer bytes of sessions"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrNoResponders),
		errors.Is(err, nats.ErrTimeout),
		errors.As(err, &api) && api.ErrorCode == codeNoLeader:
		return "; see that JetStream is enabled, that the user may use it, and that most of the servers run"
	default:
		return ""
	}
}

// close ends the connection, and stops the engine inside.
func (l *link) close() {
	l.end()
	l.feed(nil)
	if l.conn != nil {
		l.conn.Close()
	}
	if l.engine != nil {
		stopEngine(l.engine)
	}
}
