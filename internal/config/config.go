// Package config reads the settings. It reads the LLM_COUNCIL_* environment variables into a [Config], and the roster
// file that one of them names into a [Roster]. It opens only the roster and the files that hold secrets. It leaves the
// use of the settings to the other packages.
//
// [Load] reports all problems of the variables at once, and never shows a secret.
//
// Config and its groups are the only table of settings. The tags of a field give the variable, the default and the
// meaning. The type of the field says how the text is read. Config.check has the ranges, and the rules for settings
// that depend on each other. ReplacedNames has the variables of earlier versions.
//
// White space around a value is ignored, and an empty variable counts as unset. Every secret may come from a file
// instead. LLM_COUNCIL_API_KEY_FILE, for example, names the file that holds the value of LLM_COUNCIL_API_KEY. One line
// break at the end of the file is ignored.
//
// The roster is a YAML file that names models with their options, councils of these models, and the tokens that may ask
// the councils. [Config.ParseRoster] checks the whole roster and reports all problems at once, each with its line.
// [Config.ReadRoster] opens the file, and adds its content to the settings.
//
// A hostile roster must not use up memory or time. A roster has at most [MaxRosterBytes]. Reading stops at the first
// anchor, alias or nesting beyond maxDepth, before its value is built.
package config

import (
	"encoding/base64"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/councild/councild/internal/council"
)

const (
	prefix     = "LLM_COUNCIL_"
	keyPrefix  = prefix + "API_KEY_"
	keyPattern = keyPrefix + "<NAME>"
	fileSuffix = "_FILE"
	off        = "off"
)

// SimProvider is the name of the built-in simulated provider. No provider in PROVIDERS can have this name.
const SimProvider = "sim"

// DemographicsOff is the value of DEMOGRAPHICS with which sessions do not say how their answers differ.
const DemographicsOff council.DisagreementBackend = off

// Config holds the settings, in groups. The desc tag of a field gives its meaning, unit and range. A nil pointer, a nil
// slice and an empty string stand for a setting without a value. The text "off" leaves a pointer nil.
//
// The envconfig tags hold whole names, because the package envconfig would also read variables without a prefix if it
// were given the prefix. The groups below are written as tables, with lines as long as the tags need.
type Config struct {
	Service
	Endpoints
	Members
	SessionLimits
	Costs
	Generation
	Reviews
	Audit
	Disagreement
	Records
	Preferences
	Events
	Webhooks
	SessionStore
	Process
	Constants    `ignored:"true"`
	RosterLimits `ignored:"true"`

	// SessionsInMemory says that no session is kept in the data directory.
	SessionsInMemory bool `ignored:"true"`

	settings     []Setting
	serviceLinks []string // names of the variables that Kubernetes has set for Services
	quoted       []string // variables whose values still have quotes around them
}

// Service says where the daemon listens, which clients may call it, and where it keeps its files.
type Service struct {
	Addr        string   `envconfig:"LLM_COUNCIL_ADDR" default:"127.0.0.1:8080" desc:"address to listen on, host:port; port 0 takes a free port, an empty host means all interfaces"`
	APITokens   Tokens   `envconfig:"LLM_COUNCIL_API_TOKENS" desc:"comma list of bearer tokens that clients may use, TOKEN or NAME:TOKEN, each token of 16 or more visible ASCII characters; a name keeps its sessions when its token is replaced"`
	DataDir     string   `envconfig:"LLM_COUNCIL_DATA_DIR" desc:"directory of sessions, costs, calibrations, feedback, events that wait and, without BIAS_STORE, bias records; a directory that is set must be writable; unset: the directory of BIAS_STORE, or ~/.llm-council; off: only bias records are kept"`
	CORSOrigins []string `envconfig:"LLM_COUNCIL_CORS_ORIGINS" desc:"comma list of origins, such as https://chat.example.com, whose pages may call the daemon from a browser; unset: only the daemon's own"`
}

// Endpoints has the addresses and keys of the providers.
type Endpoints struct {
	BaseURL   string    `envconfig:"LLM_COUNCIL_BASE_URL" default:"https://openrouter.ai/api/v1" desc:"OpenAI-compatible endpoint of the default provider"`
	APIKey    Secret    `envconfig:"LLM_COUNCIL_API_KEY" desc:"key of the default provider"`
	Providers Providers `envconfig:"LLM_COUNCIL_PROVIDERS" desc:"further providers, comma list of name=url; a model name:id goes to the provider of that name; sim is built in"`
	_         Secret    `envconfig:"LLM_COUNCIL_API_KEY_<NAME>" desc:"key of a provider in PROVIDERS; NAME is the provider's name in upper case, with _ for -"`
}

// Members says which models are asked, and how many a session may have.
type Members struct {
	Models        []string     `envconfig:"LLM_COUNCIL_MODELS" desc:"the council, comma list of two or more models, or of one with MODE=single; a model may be listed twice"`
	Chairman      string       `envconfig:"LLM_COUNCIL_CHAIRMAN" desc:"model that writes the final answer; unset: the first of MODELS"`
	AllowedModels []string     `envconfig:"LLM_COUNCIL_ALLOWED_MODELS" desc:"comma list of models that a request may name in addition to the configured ones"`
	Mode          council.Mode `envconfig:"LLM_COUNCIL_MODE" default:"council" desc:"council (answers, reviews, synthesis), ranked (the answer that reviewers rank first), synthesis (no reviews) or single (one model); vote needs a roster"`
	First         int          `envconfig:"LLM_COUNCIL_FIRST" default:"0" desc:"how many members are asked first; the others are asked only if these answers differ in the request's answer_form; 1: the others on demand only; 0: all at once"`
	Roster        string       `envconfig:"LLM_COUNCIL_ROSTER" desc:"YAML file that names councils, models with their options, tokens and providers, in place of MODELS, CHAIRMAN, ALLOWED_MODELS, MODE and FIRST (docs/roster.md); unset: there is one council, of MODELS"`
	MaxModels     int          `envconfig:"LLM_COUNCIL_MAX_MODELS" default:"12" desc:"maximum number of members, and of reviewers, of one session; at least 2"`
}

// SessionLimits bounds how many sessions run, and how much time and money one session may take.
type SessionLimits struct {
	MaxSessions    int            `envconfig:"LLM_COUNCIL_MAX_SESSIONS" default:"64" desc:"maximum number of sessions that run at once; at least 1"`
	Timeout        time.Duration  `envconfig:"LLM_COUNCIL_TIMEOUT" default:"10m" desc:"time limit of a whole session"`
	AttemptTimeout time.Duration  `envconfig:"LLM_COUNCIL_ATTEMPT_TIMEOUT" default:"3m" desc:"time limit of one call; never more than TIMEOUT"`
	MaxAttempts    int            `envconfig:"LLM_COUNCIL_MAX_ATTEMPTS" default:"3" desc:"maximum number of attempts of one call, including the first; at least 1"`
	Quorum         int            `envconfig:"LLM_COUNCIL_QUORUM" default:"0" desc:"fewest answers with which the review begins, 1 to the number of MODELS; 0: more than half of the members"`
	StragglerGrace *time.Duration `envconfig:"LLM_COUNCIL_STRAGGLER_GRACE" desc:"how long a stage waits for the rest once a quorum has answered, 0 or more; off: until its time is over, so that the report covers the slowest models too"`
	MaxCostUSD     *float64       `envconfig:"LLM_COUNCIL_MAX_COST_USD" desc:"cost limit of one session in US dollars; off: none"`
	MaxTotalTokens *int64         `envconfig:"LLM_COUNCIL_MAX_TOTAL_TOKENS" desc:"limit of one session's input and output tokens; off: none"`
}

// Costs says how strict the cost limits are, and has the daily limits and the prices of models.
type Costs struct {
	CostLimits            string   `envconfig:"LLM_COUNCIL_COST_LIMITS" default:"soft" desc:"soft (the session stops asking once a limit is spent; calls that are under way may exceed it) or hard (the maximum cost of a call is reserved before it is sent, so no limit is exceeded; models without a price are refused)"`
	MaxCostUSDPerDay      *float64 `envconfig:"LLM_COUNCIL_MAX_COST_USD_PER_DAY" desc:"cost limit of the sessions that begin on one day (UTC) in US dollars; off: none"`
	MaxCostUSDPerTokenDay *float64 `envconfig:"LLM_COUNCIL_MAX_COST_USD_PER_TOKEN_DAY" desc:"cost limit of the sessions of one token that begin on one day (UTC) in US dollars; off: none"`
	Prices                []string `envconfig:"LLM_COUNCIL_PRICES" desc:"comma list of MODEL=INPUT/OUTPUT in US dollars per million tokens, such as gpt-6.1-sol=2/10, MODEL as in MODELS; +request:0.005 and further prices may follow (docs/costs.md), then @2026-11-20 for the day of the prices; MODEL=free costs nothing; unset: the prices that OpenRouter lists"`
}

// Generation says how models write.
type Generation struct {
	Temperature       *float64 `envconfig:"LLM_COUNCIL_TEMPERATURE" desc:"sampling temperature of answers and the synthesis, 0 to 2; unset: the provider's own"`
	ReviewTemperature *float64 `envconfig:"LLM_COUNCIL_REVIEW_TEMPERATURE" desc:"sampling temperature of reviews, 0 to 2; unset: the provider's own"`
	MaxOutputTokens   *int     `envconfig:"LLM_COUNCIL_MAX_OUTPUT_TOKENS" desc:"maximum output tokens of one call; unset: the provider's own"`
	Map               bool     `envconfig:"LLM_COUNCIL_MAP" default:"true" desc:"have the chairman also write where the answers agree and where they do not, with quotes that the daemon checks; not at OpenAI's endpoints, with output_schema or in comparisons"`
}

// Reviews says what reviewers see, and how their ballots count.
type Reviews struct {
	BallotRepair   bool                  `envconfig:"LLM_COUNCIL_BALLOT_REPAIR" default:"false" desc:"ask again if a review has no ballot, or one that leaves out answers"`
	Order          council.Order         `envconfig:"LLM_COUNCIL_ORDER" default:"balanced" desc:"how to draw the orders in which reviewers see the answers: balanced, per_reviewer or shared"`
	RandomSeed     *int64                `envconfig:"LLM_COUNCIL_RANDOM_SEED" desc:"whole number from 0 to 9007199254740991 that makes labels and orders reproducible; unset or -1: every session draws its own"`
	SelfReviewRate float64               `envconfig:"LLM_COUNCIL_SELF_REVIEW_RATE" default:"0" desc:"share of sessions in which reviewers also see answers of their own model, 0 to 1; such votes are never counted"`
	PartialBallots council.PartialPolicy `envconfig:"LLM_COUNCIL_PARTIAL_BALLOTS" default:"available" desc:"how to count answers that a ballot leaves out: available (no points) or tied_last (a share of the last places)"`
	ConfigVersion  string                `envconfig:"LLM_COUNCIL_CONFIG_VERSION" desc:"council_config_version of the records; unset: the version of the review prompt"`
}

// Audit says when the audit of a session reports bias.
type Audit struct {
	BiasAudit                  bool    `envconfig:"LLM_COUNCIL_BIAS_AUDIT" default:"true" desc:"audit each session for bias (ADR-015)"`
	LengthCorrelationThreshold float64 `envconfig:"LLM_COUNCIL_LENGTH_CORRELATION_THRESHOLD" default:"0.3" desc:"least correlation of length and score, 0 to 1, that the audit of a session reports as an association, if p is also below .01"`
	PositionVarianceThreshold  float64 `envconfig:"LLM_COUNCIL_POSITION_VARIANCE_THRESHOLD" default:"0.5" desc:"least variance of the mean scores per position, 0 or more, that the audit of a session reports as position bias, if p is also .05 or less"`
}

// AuditThresholds returns the limits above which a figure raises its flag. They are nil if no session is audited.
func (a Audit) AuditThresholds() *council.AuditThresholds {
	if !a.BiasAudit {
		return nil
	}
	return &council.AuditThresholds{
		LengthCorrelation: a.LengthCorrelationThreshold, PositionVariance: a.PositionVarianceThreshold,
	}
}

// Disagreement says how a session finds the demographic axes on which its answers differ.
type Disagreement struct {
	Demographics          council.DisagreementBackend `envconfig:"LLM_COUNCIL_DEMOGRAPHICS" default:"lexicon" desc:"how each session finds out how its answers differ: lexicon (on which demographic axes their coverage differs), llm_judge (JUDGE_MODEL also rates the differences) or embedding (EMBEDDING_MODEL also says which answers are similar); llm_judge and embedding run beside the reviewers and within the limits of the session; off: not at all"`
	Lexicon               string                      `envconfig:"LLM_COUNCIL_LEXICON" desc:"JSON file of the terms by axis for DEMOGRAPHICS, instead of the built-in English ones or in addition to them; unset: the built-in ones"`
	DemographicsThreshold float64                     `envconfig:"LLM_COUNCIL_DEMOGRAPHICS_THRESHOLD" default:"0.3" desc:"lowest score at which an axis may be flagged, 0 to 1"`
	JudgeModel            string                      `envconfig:"LLM_COUNCIL_JUDGE_MODEL" desc:"model that rates how far answers differ in how they treat people, for DEMOGRAPHICS=llm_judge and for requests to compare answers that ask for llm_judge; written as in MODELS, or with ROSTER as an id of the roster; unset: none"`
}

// Records says which bias records sessions leave, and which of them the bias report reads.
type Records struct {
	BiasPersistence    bool           `envconfig:"LLM_COUNCIL_BIAS_PERSISTENCE" default:"true" desc:"keep bias records (ADR-018)"`
	BiasStore          string         `envconfig:"LLM_COUNCIL_BIAS_STORE" desc:"file of the bias records; ~ is the home directory; unset: bias_metrics.jsonl in DATA_DIR, or in ~/.llm-council"`
	BiasConsent        int            `envconfig:"LLM_COUNCIL_BIAS_CONSENT" default:"1" desc:"consent level of the records, 0 to 4 (ADR-018); 0 keeps none, 4 adds a keyed hash of the question"`
	BiasWindowSessions int            `envconfig:"LLM_COUNCIL_BIAS_WINDOW_SESSIONS" default:"100" desc:"how many sessions the bias report looks back; 0: no limit"`
	BiasWindowDays     int            `envconfig:"LLM_COUNCIL_BIAS_WINDOW_DAYS" default:"30" desc:"how many days the bias report looks back; 0: no limit"`
	MinBiasSessions    int            `envconfig:"LLM_COUNCIL_MIN_BIAS_SESSIONS" default:"20" desc:"minimum number of sessions for a verdict in the bias report; at least 10"`
	MonitorInterval    *time.Duration `envconfig:"LLM_COUNCIL_MONITOR_INTERVAL" desc:"how often to compute the monitor of the bias report for the metrics, 1m or more; off: never"`
	BiasFsync          council.Fsync  `envconfig:"LLM_COUNCIL_BIAS_FSYNC" default:"session" desc:"when records are synced to disk: session (before the answer), interval, or off (the operating system decides)"`
	BiasRetentionDays  *int           `envconfig:"LLM_COUNCIL_BIAS_RETENTION_DAYS" desc:"how many days after its newest record a closed segment of the records is deleted; off: never"`
	EmbeddingModel     string         `envconfig:"LLM_COUNCIL_EMBEDDING_MODEL" desc:"model that embeds the answers of each session (POST /embeddings), so that the records say how alike the answers are and the bias report measures style mimicry; it also embeds the answers of requests to compare answers that ask for embedding; it gets the first 6000 characters of each answer; unset: none"`
	HashSecret         Secret         `envconfig:"LLM_COUNCIL_HASH_SECRET" desc:"secret for the hashes of questions and persons, at least 16 characters; required for consent level 4 and for feedback"`
}

// Preferences says how often reviewers and people are asked which answer they prefer.
type Preferences struct {
	ShadowRate float64 `envconfig:"LLM_COUNCIL_SHADOW_RATE" default:"0" desc:"share of sessions, 0 to 1, after which reviewers compare the final answer with the top-ranked one, at their own cost"`
	LabelRate  float64 `envconfig:"LLM_COUNCIL_LABEL_RATE" default:"0" desc:"share of sessions, 0 to 1, that say label_wanted, so that people are asked which answer they prefer; for these sessions, SHADOW_RATE counts as 1"`
}

// Events says where the events of sessions go, and whether the daemon accepts events of other councils.
type Events struct {
	EventSink    string   `envconfig:"LLM_COUNCIL_EVENT_SINK" desc:"where the events of sessions go from BIAS_CONSENT 2 on: a file, or an https address such as https://events.example.com/v1/events; unset: nowhere"`
	EventToken   Secret   `envconfig:"LLM_COUNCIL_EVENT_TOKEN" desc:"bearer token for the address in EVENT_SINK"`
	EventAllow   []string `envconfig:"LLM_COUNCIL_EVENT_ALLOW" desc:"comma list of networks such as 10.1.0.0/16 to which events may go in addition to public addresses; in these networks, EVENT_SINK may be an http address"`
	EventsIntake bool     `envconfig:"LLM_COUNCIL_EVENTS_INTAKE" default:"false" desc:"accept events of other councils at POST /v1/events, from tokens that may send events, and keep them for 90 days"`
}

// Webhooks says which address learns that a session in the background has ended.
type Webhooks struct {
	WebhookURL    string `envconfig:"LLM_COUNCIL_WEBHOOK_URL" desc:"https address of webhooks about sessions in the background that have ended; EVENT_ALLOW applies as to EVENT_SINK; unset: none"`
	WebhookSecret Secret `envconfig:"LLM_COUNCIL_WEBHOOK_SECRET" desc:"whsec_ and the base64 form of 24 to 64 random bytes; NEW,OLD signs with both"`
}

// SessionStore says where sessions are kept, and for how long.
type SessionStore struct {
	SessionsKey Secret `envconfig:"LLM_COUNCIL_SESSIONS_KEY" desc:"key that encrypts the sessions in DATA_DIR, 16 or more characters; unset: no encryption"`
	Cluster
	SessionRetention time.Duration `envconfig:"LLM_COUNCIL_SESSION_RETENTION" default:"24h" desc:"how long a finished session is kept; 0: not at all"`
	SessionsKept     int           `envconfig:"LLM_COUNCIL_SESSIONS_KEPT" default:"1000" desc:"maximum number of finished sessions kept, counted separately in DATA_DIR and memory; the oldest are dropped first; 0: none"`
}

// Cluster is the NATS cluster that keeps the sessions of several daemons.
type Cluster struct {
	NatsURL      string `envconfig:"LLM_COUNCIL_NATS_URL" desc:"comma list of the addresses of a NATS JetStream cluster that keeps sessions for several daemons, in place of DATA_DIR; unset: this daemon is alone"`
	NatsCreds    Secret `envconfig:"LLM_COUNCIL_NATS_CREDS" desc:"content of the credentials file of a user of that cluster; unset: the cluster needs none"`
	NatsCA       string `envconfig:"LLM_COUNCIL_NATS_CA" desc:"PEM file of the certificate authorities of that cluster; unset: those of the system"`
	NatsPrefix   string `envconfig:"LLM_COUNCIL_NATS_PREFIX" default:"council" desc:"prefix of all names on that cluster, 1 to 32 of a to z, 0 to 9, - and _; daemons with the same prefix share their sessions"`
	NatsReplicas int    `envconfig:"LLM_COUNCIL_NATS_REPLICAS" default:"3" desc:"servers of that cluster that store each session, 1 to 5"`
}

// Process has the limit of a question, what the daemon logs and exposes, and how it stops.
type Process struct {
	MaxQueryBytes Bytes         `envconfig:"LLM_COUNCIL_MAX_QUERY_BYTES" default:"256KiB" desc:"maximum size of a question in bytes"`
	Metrics       bool          `envconfig:"LLM_COUNCIL_METRICS" default:"true" desc:"serve Prometheus metrics at /metrics, to everyone who can reach the address"`
	LogLevel      slog.Level    `envconfig:"LLM_COUNCIL_LOG_LEVEL" default:"info" desc:"lowest level that is logged: debug, info, warn or error"`
	DrainTimeout  time.Duration `envconfig:"LLM_COUNCIL_DRAIN_TIMEOUT" default:"30s" desc:"how long running sessions may take to finish after a signal to stop, 0 or more"`
}

// RosterLimits says which cost limits the roster adds. ReadRoster sets it.
type RosterLimits struct {
	// CouncilLimits says that councils of the roster have cost limits of their own.
	CouncilLimits bool
	// TokenDayLimits says that tokens of the roster have daily limits of their own.
	TokenDayLimits bool
}

// Constants are values that users cannot change. Load sets them, and tests change them.
type Constants struct {
	// DialTimeout limits the time to connect to a provider.
	DialTimeout time.Duration
	// IdleTimeout limits the time between two bytes of a reply. A provider of the roster may have its own.
	IdleTimeout time.Duration
	// Lease is how long a daemon is silent before other daemons take over its sessions. Lease is longer than the
	// cluster takes to elect a leader.
	Lease time.Duration
	// BiasFsyncInterval limits the time between an answer and the sync of its records to disk. It applies only if
	// BIAS_FSYNC is interval.
	BiasFsyncInterval time.Duration
	// BiasRotateBytes is the size at which the record file becomes a closed, compressed segment.
	BiasRotateBytes Bytes
	// EventsMinOrgs is how many organisations must send events about a model before the board shows a row for it.
	EventsMinOrgs int
	// MaxBodyBytes limits the body of a request.
	MaxBodyBytes Bytes
	// MaxUpstreamBytes limits the reply of a provider.
	MaxUpstreamBytes Bytes
	// MaxSessionBytes limits the memory of a session for its texts and its prompts in flight.
	MaxSessionBytes Bytes
	// SessionsKeptBytes limits the finished sessions that can be fetched. The oldest sessions are dropped first.
	SessionsKeptBytes Bytes
}

// constants returns the constants. MaxBodyBytes and SessionsKeptBytes grow with a setting.
func (c Config) constants() Constants {
	return Constants{
		DialTimeout:       5 * time.Second,
		IdleTimeout:       time.Minute,
		Lease:             20 * time.Second,
		BiasFsyncInterval: time.Second,
		BiasRotateBytes:   64 << 20,
		EventsMinOrgs:     5,
		MaxBodyBytes:      max(1<<20, 4*min(c.MaxQueryBytes, maxBytes)),
		MaxUpstreamBytes:  8 << 20,
		MaxSessionBytes:   64 << 20,
		SessionsKeptBytes: max(256<<20, 256<<10*min(Bytes(c.SessionsKept), maxBytes>>18)),
	}
}

// maxBytes replaces every larger size, so that products with maxBytes do not overflow.
const maxBytes Bytes = 1 << 50

// ServiceLinks returns the sorted names of the variables that Kubernetes has set for Services. These variables are no
// settings.
func (c Config) ServiceLinks() []string { return slices.Clone(c.serviceLinks) }

// ProviderNames returns the provider names that may stand before the colon in the name of a model. These are
// SimProvider and the names of Providers.
func (c Config) ProviderNames() []string {
	names := append(make([]string, 0, 1+len(c.Providers)), SimProvider)
	for _, p := range c.Providers {
		names = append(names, p.Name)
	}
	return names
}

// file returns the path of a file or directory in the data directory. It returns "" if only bias records are kept. The
// result named is true if DATA_DIR names the directory. The daemon then does not start if it cannot use the path.
func (c Config) file(name string) (path string, named bool) {
	switch c.DataDir {
	case "":
		return filepath.Join(filepath.Dir(c.BiasStore), name), false
	case off:
		return "", false
	default:
		return filepath.Join(c.DataDir, name), true
	}
}

// SessionsDir returns the directory in which sessions are kept, or "" for none. The result named is as in file.
func (c Config) SessionsDir() (dir string, named bool) {
	if c.SessionsInMemory {
		return "", false
	}
	return c.file("sessions")
}

// HasDayLimit reports whether there is a daily limit, for all sessions or for a token.
func (c Config) HasDayLimit() bool {
	return c.MaxCostUSDPerDay != nil || c.MaxCostUSDPerTokenDay != nil || c.TokenDayLimits
}

// HasHardLimits reports whether the cost limits are hard, so that no cost may exceed them.
func (c Config) HasHardLimits() bool { return c.CostLimits == "hard" }

// SpendFile returns the file with the costs of sessions, or "" for none. The result named is as in file.
func (c Config) SpendFile() (path string, named bool) { return c.file("spend.jsonl") }

// CalibrationFile returns the file with the calibrations of JUDGE_MODEL and EMBEDDING_MODEL, or "" for none.
func (c Config) CalibrationFile() string {
	path, _ := c.file("calibrations.jsonl")
	return path
}

// EvidenceFile returns the file with the opinions of reviewers and people about sessions, or "" for none. The result
// named is as in file.
func (c Config) EvidenceFile() (path string, named bool) {
	if !c.KeepsRecords() {
		return "", false
	}
	return c.file("evidence.jsonl")
}

// GateFile returns the file with the votes of the gate, or "" for none.
func (c Config) GateFile() string {
	if !c.KeepsRecords() {
		return ""
	}
	path, _ := c.file("gate.jsonl")
	return path
}

// SaysHowAnswersDiffer reports whether sessions say on which demographic axes the answers differ.
func (c Config) SaysHowAnswersDiffer() bool { return c.Demographics != DemographicsOff }

// SendsEvents reports whether events of sessions leave this process.
func (c Config) SendsEvents() bool {
	return c.EventSink != "" && c.BiasConsent >= 2 && c.KeepsRecords()
}

// EventsGoToURL reports whether EVENT_SINK is an address, and no file.
func (c Config) EventsGoToURL() bool { return strings.Contains(c.EventSink, "://") }

// EventFile returns the file with the events that wait to be sent, or "" for none.
func (c Config) EventFile() string {
	path, _ := c.file("events.jsonl")
	return path
}

// WebhookFile returns the file with the webhooks that wait to be sent, or "" for none.
func (c Config) WebhookFile() string {
	path, _ := c.file("webhooks.jsonl")
	return path
}

// WebhookKeys returns the keys in WEBHOOK_SECRET.
func (c Config) WebhookKeys() ([][]byte, error) {
	var keys [][]byte
	for secret := range strings.SplitSeq(c.WebhookSecret.Reveal(), ",") {
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, webhookPrefix))
		if err != nil || !strings.HasPrefix(secret, webhookPrefix) || len(key) < minWebhookKey || len(key) > maxWebhookKey {
			return nil, errors.New("is not a webhook secret") // The error does not quote the secret.
		}
		keys = append(keys, key)
	}
	if len(keys) > maxWebhookKeys {
		return nil, errors.New("has too many secrets")
	}
	return keys, nil
}

// IntakeFile returns the file with the accepted events of other councils, or "" for none.
func (c Config) IntakeFile() string {
	path, _ := c.file("events-intake.jsonl")
	return path
}

// EventNetworks returns the networks of EVENT_ALLOW.
func (c Config) EventNetworks() []netip.Prefix {
	networks := make([]netip.Prefix, 0, len(c.EventAllow))
	for _, text := range c.EventAllow {
		if network, err := netip.ParsePrefix(text); err == nil { // check reports an entry that is no network.
			networks = append(networks, network)
		}
	}
	return networks
}

// Source says where a setting's value comes from.
type Source string

// The sources of a value.
const (
	SourceDefault     Source = "default"
	SourceEnvironment Source = "environment"
	SourceFile        Source = "file" // the _FILE form of a secret
)

// Setting describes one variable for people.
type Setting struct {
	Name    string // with the prefix LLM_COUNCIL_
	Value   string // the text of the variable, or Default. A secret that is set is [redacted].
	Default string // "" if there is none
	Source  Source
	Meaning string // on one line
	Secret  bool   // The variable Name + "_FILE" may name a file with the value.
}

// Settings returns all settings in the order of Config. The row of Providers is followed by one row for the key of each
// provider. Without providers, the row LLM_COUNCIL_API_KEY_<NAME> follows instead. The zero Config returns the
// defaults.
func (c Config) Settings() []Setting {
	if c.settings == nil {
		return table()
	}
	return slices.Clone(c.settings)
}

// table returns the settings with their defaults, from the tags of Config.
func table() []Setting {
	fields := settingFields()
	rows := make([]Setting, len(fields))
	for i, f := range fields {
		value := f.Tag.Get("default")
		rows[i] = Setting{
			Name: f.Tag.Get("envconfig"), Value: value, Default: value, Source: SourceDefault, Meaning: f.Tag.Get("desc"),
			Secret: f.Type == reflect.TypeFor[Secret]() || f.Type == reflect.TypeFor[Tokens](),
		}
	}
	return rows
}

// settingFields returns the fields of Config and of its groups that are settings, in their order.
func settingFields() []reflect.StructField {
	fields := reflect.VisibleFields(reflect.TypeFor[Config]())
	return slices.DeleteFunc(fields, func(f reflect.StructField) bool { return f.Tag.Get("envconfig") == "" })
}

// SettingNames returns the variable of every setting, by the name of its field.
func SettingNames() council.SettingNames {
	names := council.SettingNames{}
	for _, f := range settingFields() {
		names[council.Setting(f.Name)] = f.Tag.Get("envconfig")
	}
	return names
}

// Tracing returns the variables that OpenTelemetry's own library reads. These variables do not begin with LLM_COUNCIL_.
// They say where traces go, and what traces contain. The value of a variable that may hold a secret is [redacted].
func Tracing() []Setting {
	settings := []Setting{
		{
			Name:    "OTEL_EXPORTER_OTLP_ENDPOINT",
			Meaning: "collector that traces are sent to over OTLP; over HTTP, below /v1/traces",
		},
		{Name: "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", Meaning: "the whole URL that traces are sent to, instead of the above"},
		{
			Name: "OTEL_TRACES_EXPORTER", Meaning: "otlp, console or none; if this and the endpoints are unset: no traces",
		},
		{Name: "OTEL_EXPORTER_OTLP_PROTOCOL", Default: "http/protobuf", Meaning: "http/protobuf or grpc"},
		{Name: "OTEL_SDK_DISABLED", Default: "false", Meaning: "true: no traces"},
		{
			Name: "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", Default: "false",
			Meaning: "true: traces hold prompts and answers",
		},
		{Name: "OTEL_EXPORTER_OTLP_HEADERS", Meaning: "headers for the collector, comma list of name=value", Secret: true},
		{Name: "OTEL_EXPORTER_OTLP_TRACES_HEADERS", Meaning: "the same for traces alone", Secret: true},
		{Name: "OTEL_SERVICE_NAME", Default: "councild", Meaning: "name of the service in the traces"},
		{Name: "OTEL_RESOURCE_ATTRIBUTES", Meaning: "further attributes of the service, comma list of name=value"},
		{Name: "OTEL_TRACES_SAMPLER", Default: "parentbased_always_on", Meaning: "which traces are sent"},
		{Name: "OTEL_TRACES_SAMPLER_ARG", Meaning: "what the sampler needs, such as the share of traces"},
	}
	for i := range settings {
		s := &settings[i]
		s.Value = s.Default
		s.Source = SourceDefault
		if value := os.Getenv(s.Name); value != "" {
			s.Value = value
			s.Source = SourceEnvironment
			if s.Secret || strings.Contains(value, "@") { // A URL may hold a password.
				s.Value = redacted
			}
		}
	}
	return settings
}
