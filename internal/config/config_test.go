package config_test

import (
	"encoding/base64"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/council"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const home = "/home/somebody"

type vars map[string]string

// with returns v and more together.
func with(v, more vars) vars {
	all := vars{}
	maps.Copy(all, v)
	maps.Copy(all, more)
	return all
}

// load calls Load with no other setting than v, by names without their prefix.
func load(t *testing.T, v vars) (config.Config, error) {
	t.Helper()
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "LLM_COUNCIL_") {
			t.Setenv(name, "")
		}
	}
	t.Setenv("HOME", home)
	for name, value := range v {
		t.Setenv("LLM_COUNCIL_"+name, value)
	}
	return config.Load()
}

func mustLoad(t *testing.T, v vars) config.Config {
	t.Helper()
	c, err := load(t, v)
	if err != nil {
		t.Fatalf("Load: %v", err)
	}
	return c
}

// diff compares what others can see of two Configs.
func diff(want, got config.Config) string {
	return cmp.Diff(want, got, cmpopts.IgnoreUnexported(config.Config{}))
}

func defaults() config.Config {
	var c config.Config
	c.Addr = "127.0.0.1:8080"
	c.BaseURL = "https://openrouter.ai/api/v1"
	c.Mode = council.ModeCouncil
	c.MaxModels = 12
	c.MaxSessions = 64
	c.Timeout = 10 * time.Minute
	c.AttemptTimeout = 3 * time.Minute
	c.MaxAttempts = 3
	c.Order = council.OrderBalanced
	c.PartialBallots = "available"
	c.CostLimits = "soft"
	c.Map = true
	c.BiasAudit = true
	c.LengthCorrelationThreshold = 0.3
	c.PositionVarianceThreshold = 0.5
	c.BiasPersistence = true
	c.BiasStore = home + "/.llm-council/bias_metrics.jsonl"
	c.BiasConsent = 1
	c.BiasFsync = "session"
	c.BiasWindowSessions = 100
	c.BiasWindowDays = 30
	c.MinBiasSessions = 20
	c.Demographics = council.BackendLexicon
	c.DemographicsThreshold = 0.3
	c.NatsPrefix = "council"
	c.NatsReplicas = 3
	c.SessionRetention = 24 * time.Hour
	c.SessionsKept = 1000
	c.MaxQueryBytes = 256 << 10
	c.Metrics = true
	c.LogLevel = slog.LevelInfo
	c.DrainTimeout = 30 * time.Second
	c.Constants = config.Constants{
		DialTimeout: 5 * time.Second, IdleTimeout: time.Minute, Lease: 20 * time.Second, BiasFsyncInterval: time.Second, BiasRotateBytes: 64 << 20, EventsMinOrgs: 5,
		MaxBodyBytes: 1 << 20, MaxUpstreamBytes: 8 << 20, MaxSessionBytes: 64 << 20, SessionsKeptBytes: 256 << 20,
	}
	return c
}

func TestDefaults(t *testing.T) {
	if d := diff(defaults(), mustLoad(t, nil)); d != "" {
		t.Error(d)
	}
}

func TestEveryVariableChangesItsField(t *testing.T) {
	const token = "0123456789abcdef"
	tests := []struct {
		name, value string
		also        vars // what the variable needs to be valid
		change      func(*config.Config)
	}{
		{"ADDR", "[::1]:0", nil, func(c *config.Config) { c.Addr = "[::1]:0" }},
		{"API_TOKENS", token + ", ada_1-B: " + token + ":g", nil, func(c *config.Config) {
			c.APITokens = config.Tokens{{Secret: token}, {Name: "ada_1-B", Secret: token + ":g"}}
		}},
		{"DATA_DIR", "~/council", nil, func(c *config.Config) {
			c.DataDir = home + "/council"
			c.BiasStore = home + "/council/bias_metrics.jsonl"
		}},
		{
			"CORS_ORIGINS", "https://chat.example.com, http://localhost:5173,HTTPS://A.Example:443/," +
				"http://b.example:80,http://c.example:443,https://[0:0::1]:0443,http://xn--mnchen-3ya.example:8080", nil,
			func(c *config.Config) {
				c.CORSOrigins = []string{
					"https://chat.example.com", "http://localhost:5173", "https://a.example", "http://b.example", "http://c.example:443",
					"https://[::1]", "http://xn--mnchen-3ya.example:8080",
				}
			},
		},
		{"BASE_URL", "http://localhost:11434/v1/", nil, func(c *config.Config) { c.BaseURL = "http://localhost:11434/v1" }},
		{"API_KEY", "sk-1", nil, func(c *config.Config) { c.APIKey = "sk-1" }},
		{"PROVIDERS", "openai = https://api.openai.com/v1/ ,my-llm=http://10.0.0.1:8000/v1", nil, func(c *config.Config) {
			c.Providers = config.Providers{
				{Name: "openai", BaseURL: "https://api.openai.com/v1"}, {Name: "my-llm", BaseURL: "http://10.0.0.1:8000/v1"},
			}
		}},
		{"API_KEY_<NAME>", "", vars{"PROVIDERS": "my-llm=http://10.0.0.1:8000/v1", "API_KEY_MY_LLM": "sk-2"}, func(c *config.Config) {
			c.Providers = config.Providers{{Name: "my-llm", BaseURL: "http://10.0.0.1:8000/v1", APIKey: "sk-2"}}
		}},
		{
			"MODELS", " llama3:8b,x/y:free , llama3:8b", nil,
			func(c *config.Config) { c.Models = []string{"llama3:8b", "x/y:free", "llama3:8b"} },
		},
		{"CHAIRMAN", " a/b ", nil, func(c *config.Config) { c.Chairman = "a/b" }},
		{"ALLOWED_MODELS", "a, b", nil, func(c *config.Config) { c.AllowedModels = []string{"a", "b"} }},
		{"MODE", "ranked", nil, func(c *config.Config) { c.Mode = council.ModeRanked }},
		{"FIRST", "2", nil, func(c *config.Config) { c.First = 2 }},
		{"ROSTER", "/etc/councild/roster.yaml", nil, func(c *config.Config) { c.Roster = "/etc/councild/roster.yaml" }},
		{"MAX_MODELS", "2", nil, func(c *config.Config) { c.MaxModels = 2 }},
		{"MAX_SESSIONS", "1", nil, func(c *config.Config) { c.MaxSessions = 1 }},
		{"TIMEOUT", "1m", nil, func(c *config.Config) { c.Timeout, c.AttemptTimeout = time.Minute, time.Minute }},
		{"ATTEMPT_TIMEOUT", "1m30s", nil, func(c *config.Config) { c.AttemptTimeout = 90 * time.Second }},
		{"MAX_ATTEMPTS", "1", nil, func(c *config.Config) { c.MaxAttempts = 1 }},
		{"QUORUM", "2", nil, func(c *config.Config) { c.Quorum = 2 }},
		{"STRAGGLER_GRACE", "0", nil, func(c *config.Config) { c.StragglerGrace = new(time.Duration(0)) }},
		{"MAX_COST_USD", "0.25", nil, func(c *config.Config) { c.MaxCostUSD = new(0.25) }},
		{"MAX_TOTAL_TOKENS", "100000", nil, func(c *config.Config) { c.MaxTotalTokens = new(int64(100000)) }},
		{"COST_LIMITS", "hard", nil, func(c *config.Config) { c.CostLimits = "hard" }},
		{"MAX_COST_USD_PER_DAY", "12.5", nil, func(c *config.Config) { c.MaxCostUSDPerDay = new(12.5) }},
		{"MAX_COST_USD_PER_TOKEN_DAY", "2.5", nil, func(c *config.Config) { c.MaxCostUSDPerTokenDay = new(2.5) }},
		{"PRICES", "a=1/2, b=free", nil, func(c *config.Config) { c.Prices = []string{"a=1/2", "b=free"} }},
		{"TEMPERATURE", "0", nil, func(c *config.Config) { c.Temperature = new(0.0) }},
		{"REVIEW_TEMPERATURE", "2", nil, func(c *config.Config) { c.ReviewTemperature = new(2.0) }},
		{"MAX_OUTPUT_TOKENS", "4096", nil, func(c *config.Config) { c.MaxOutputTokens = new(4096) }},
		{"MAP", "false", nil, func(c *config.Config) { c.Map = false }},
		{"BALLOT_REPAIR", "true", nil, func(c *config.Config) { c.BallotRepair = true }},
		{"ORDER", "per_reviewer", nil, func(c *config.Config) { c.Order = council.OrderPerReviewer }},
		{"RANDOM_SEED", "7", nil, func(c *config.Config) { c.RandomSeed = new(int64(7)) }},
		{"SELF_REVIEW_RATE", "1", nil, func(c *config.Config) { c.SelfReviewRate = 1 }},
		{"PARTIAL_BALLOTS", "tied_last", nil, func(c *config.Config) { c.PartialBallots = "tied_last" }},
		{"CONFIG_VERSION", "2026-07", nil, func(c *config.Config) { c.ConfigVersion = "2026-07" }},
		{"BIAS_AUDIT", "false", nil, func(c *config.Config) { c.BiasAudit = false }},
		{"LENGTH_CORRELATION_THRESHOLD", "1", nil, func(c *config.Config) { c.LengthCorrelationThreshold = 1 }},
		{"POSITION_VARIANCE_THRESHOLD", "1.5", nil, func(c *config.Config) { c.PositionVarianceThreshold = 1.5 }},
		{"DEMOGRAPHICS", "off", nil, func(c *config.Config) { c.Demographics = config.DemographicsOff }},
		{"LEXICON", "/etc/lexicon.json", nil, func(c *config.Config) { c.Lexicon = "/etc/lexicon.json" }},
		{"DEMOGRAPHICS_THRESHOLD", "0.5", nil, func(c *config.Config) { c.DemographicsThreshold = 0.5 }},
		{"JUDGE_MODEL", "openai/gpt-5", nil, func(c *config.Config) { c.JudgeModel = "openai/gpt-5" }},
		{"BIAS_PERSISTENCE", "0", nil, func(c *config.Config) { c.BiasPersistence = false }},
		{"BIAS_STORE", "~/records.jsonl", nil, func(c *config.Config) { c.BiasStore = home + "/records.jsonl" }},
		{"BIAS_CONSENT", "4", vars{"HASH_SECRET": "a-secret-of-sixteen"}, func(c *config.Config) { c.BiasConsent, c.HashSecret = 4, "a-secret-of-sixteen" }},
		{"BIAS_WINDOW_SESSIONS", "0", nil, func(c *config.Config) { c.BiasWindowSessions = 0 }},
		{"BIAS_WINDOW_DAYS", "0", nil, func(c *config.Config) { c.BiasWindowDays = 0 }},
		{"MIN_BIAS_SESSIONS", "10", nil, func(c *config.Config) { c.MinBiasSessions = 10 }},
		{"MONITOR_INTERVAL", "1h", nil, func(c *config.Config) { c.MonitorInterval = new(time.Hour) }},
		{"BIAS_FSYNC", "interval", nil, func(c *config.Config) { c.BiasFsync = "interval" }},
		{"BIAS_RETENTION_DAYS", "90", nil, func(c *config.Config) { c.BiasRetentionDays = new(90) }},
		{"EMBEDDING_MODEL", "ollama:nomic-embed-text", nil, func(c *config.Config) { c.EmbeddingModel = "ollama:nomic-embed-text" }},
		{"HASH_SECRET", "a-secret-of-sixteen", nil, func(c *config.Config) { c.HashSecret = "a-secret-of-sixteen" }},
		{"SHADOW_RATE", "0.1", nil, func(c *config.Config) { c.ShadowRate = 0.1 }},
		{"LABEL_RATE", "1", vars{"HASH_SECRET": "a-secret-of-sixteen"}, func(c *config.Config) { c.LabelRate, c.HashSecret = 1, "a-secret-of-sixteen" }},
		{"EVENT_SINK", "https://events.example.com/v1/events", nil, func(c *config.Config) { c.EventSink = "https://events.example.com/v1/events" }},
		{
			"EVENT_TOKEN", "a-secret-of-sixteen",
			vars{"EVENT_SINK": "https://a.example"},
			func(c *config.Config) { c.EventToken, c.EventSink = "a-secret-of-sixteen", "https://a.example" },
		},
		{"EVENT_ALLOW", "10.1.0.0/16, fd00::/8", nil, func(c *config.Config) { c.EventAllow = []string{"10.1.0.0/16", "fd00::/8"} }},
		{"EVENTS_INTAKE", "true", nil, func(c *config.Config) { c.EventsIntake = true }},
		{
			"WEBHOOK_URL", "https://hooks.example.com/councild",
			vars{"WEBHOOK_SECRET": webhookSecret},
			func(c *config.Config) {
				c.WebhookURL = "https://hooks.example.com/councild"
				c.WebhookSecret = webhookSecret
			},
		},
		{
			"WEBHOOK_SECRET", webhookSecret + "," + webhookSecret,
			vars{"WEBHOOK_URL": "https://hooks.example.com"},
			func(c *config.Config) {
				c.WebhookURL = "https://hooks.example.com"
				c.WebhookSecret = webhookSecret + "," + webhookSecret
			},
		},
		{"SESSIONS_KEY", "sixteen letters.", nil, func(c *config.Config) { c.SessionsKey = "sixteen letters." }},
		{"NATS_URL", "nats://a:4222, tls://b:4222", nil, func(c *config.Config) { c.NatsURL = "nats://a:4222, tls://b:4222" }},
		{"NATS_CREDS", "two\nlines", nil, func(c *config.Config) { c.NatsCreds = "two\nlines" }},
		{"NATS_CA", "~/ca.pem", nil, func(c *config.Config) { c.NatsCA = home + "/ca.pem" }},
		{"NATS_PREFIX", "team-1_a", nil, func(c *config.Config) { c.NatsPrefix = "team-1_a" }},
		{"NATS_REPLICAS", "1", nil, func(c *config.Config) { c.NatsReplicas = 1 }},
		{"SESSION_RETENTION", "0s", nil, func(c *config.Config) { c.SessionRetention = 0 }},
		{"SESSIONS_KEPT", "0", nil, func(c *config.Config) { c.SessionsKept = 0 }},
		{"MAX_QUERY_BYTES", "1", nil, func(c *config.Config) { c.MaxQueryBytes = 1 }},
		{"METRICS", "false", nil, func(c *config.Config) { c.Metrics = false }},
		{"LOG_LEVEL", "debug", nil, func(c *config.Config) { c.LogLevel = slog.LevelDebug }},
		{"DRAIN_TIMEOUT", "0s", nil, func(c *config.Config) { c.DrainTimeout = 0 }},
	}
	tested := make([]string, 0, len(tests))
	for _, tt := range tests {
		tested = append(tested, "LLM_COUNCIL_"+tt.name)
		t.Run(tt.name, func(t *testing.T) {
			want := defaults()
			tt.change(&want)
			if diff(defaults(), want) == "" {
				t.Fatal("the case changes nothing")
			}
			if d := diff(want, mustLoad(t, with(vars{tt.name: tt.value}, tt.also))); d != "" {
				t.Error(d)
			}
		})
	}
	settings := (config.Config{}).Settings()
	known := make([]string, len(settings))
	for i, s := range settings {
		known[i] = s.Name
	}
	if d := cmp.Diff(known, tested); d != "" {
		t.Errorf("the cases are not the settings in their order:\n%s", d)
	}
}

const (
	webhookSecret      = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"
	writeWebhookSecret = "write whsec_ and the base64 form of 24 to 64 random bytes, as echo \"whsec_$(openssl rand -base64 32)\" prints it"
	badWebhookMessage  = "LLM_COUNCIL_WEBHOOK_SECRET: is not one or two secrets of Standard Webhooks: " + writeWebhookSecret +
		"; to replace a secret, write NEW,OLD for a time"
)

func badWebhookSecret(secret string) vars {
	return vars{"WEBHOOK_URL": "https://a.example", "WEBHOOK_SECRET": secret}
}

func TestInvalid(t *testing.T) {
	const (
		hostPort  = " is not host:port with a port from 0 to 65535: write it as in 127.0.0.1:8080"
		baseURL   = "is not an absolute http or https URL: write it as in https://host/v1, without user, query, fragment or blanks; a port is 1 to 65535"
		entry1    = "the URL of entry 1 " + baseURL
		badName   = "entry 1 has no valid name: write name=url, the name of a to z, 0 to 9, _ and -"
		whole     = " is not a whole number: write digits only"
		seeds     = " is out of range: use 0 to 9007199254740991, or -1 so that every session draws its own"
		number    = " is not a number: write it as in 0.5"
		duration  = " is not a duration: write a number and a unit, such as 30s or 10m"
		size      = " is not a size: write a whole number of bytes, or one with KiB, MiB or GiB, such as 8MiB"
		level     = " is not a level: use debug, info, warn or error"
		above0    = " is out of range: use a time above 0"
		natsURL   = "is not the address of a NATS server: write nats://host:4222 or tls://host:4222, and the user's credentials into LLM_COUNCIL_NATS_CREDS"
		unit      = " is out of range: use 0 to 1"
		atLeast0  = " is out of range: use 0 or more"
		atLeast1  = " is out of range: use 1 or more"
		invisible = "has a character that is not visible ASCII, and HTTP headers allow no other"
		origin    = "is not an origin: write it as a browser does, as in https://chat.example.com, without a path, in ASCII (xn--... " +
			"for other letters); * is refused, because any page could then spend what the council costs"
		short = "has fewer than 16 characters: use a long random text, such as openssl rand -hex 32 prints"
		names = "choose another name, or remove one of them"
		colon = "has a colon, but no valid name before it: " +
			"write name:token, the name of 1 to 32 letters, digits, - and _, or a token without a colon"
		firstRange = "is -1, which is out of range: use 1 or more, but less than the number of members, or remove it to ask all members at once"
		nameEnds   = "has a name that ends in \"file\", which would clash with LLM_COUNCIL_API_KEY_..._FILE: choose another name"
	)
	// quoted is the usual wording: the text, then what is wrong with it.
	quoted := func(name, value, problem string) [3]string {
		return [3]string{name, value, `"` + value + `"` + problem}
	}
	tests := [][3]string{
		quoted("ADDR", "localhost", hostPort),
		quoted("ADDR", "127.0.0.1:65536", hostPort),
		quoted("ADDR", "127.0.0.1:http", hostPort),
		{
			"API_TOKENS", "0123456789abcde",
			"entry 1 " + short,
		},
		{"API_TOKENS", "0123456789abcdef,,0123456789abcdeg", "entry 2 is empty: remove a comma, or write the missing entry"},
		{"BASE_URL", "http://h:/v1", baseURL},
		{"BASE_URL", "http://h:0/v1", baseURL},
		{"BASE_URL", "http://h:70000/v1", baseURL},
		{"BASE_URL", "http://h:-1/v1", baseURL},
		{"BASE_URL", "http://:80/v1", baseURL},
		{"BASE_URL", "http://h/v 1", baseURL},
		{"BASE_URL", "http://h h/v1", baseURL},
		{"HASH_SECRET", "fifteen-letters", short},
		{"CORS_ORIGINS", "*", "entry 1 " + origin},
		{"CORS_ORIGINS", "https://a.example,https://b.example/b", "entry 2 " + origin},
		{"CORS_ORIGINS", "https://*.example", "entry 1 " + origin},
		{"CORS_ORIGINS", "https://user@a.example", "entry 1 " + origin},
		{"CORS_ORIGINS", "https://a.example/path", "entry 1 " + origin},
		{"CORS_ORIGINS", "https://a.example//", "entry 1 " + origin},
		{"CORS_ORIGINS", "https://a.example:0", "entry 1 " + origin},
		{"CORS_ORIGINS", "https://a.example:70000", "entry 1 " + origin},
		{"CORS_ORIGINS", "https://a.example:", "entry 1 " + origin},
		{"CORS_ORIGINS", "https://münchen.example", "entry 1 " + origin},
		{"CORS_ORIGINS", "https://a.example?x", "entry 1 " + origin},
		{"CORS_ORIGINS", "null", "entry 1 " + origin},
		{"CORS_ORIGINS", "file://x", "entry 1 " + origin},
		{"API_TOKENS", "ada:", "entry 1 " + short},
		{"API_TOKENS", "ada:0123456789abcde", "entry 1 " + short},
		{"API_TOKENS", "ada:0123456789abcdef,bob:0123456789abcdef", "entry 2 has the token of entry 1: remove one of them"},
		{"API_TOKENS", "ada:0123456789abcdef,0123456789abcdef", "entry 2 has the token of entry 1: remove one of them"},
		{"API_TOKENS", "ada:0123456789abcdef,bob:0123456789abcdeg,ada:0123456789abcdeh", "entry 3 has the name of entry 1: " + names},
		{"API_TOKENS", "0123456789abcdef,0123456789abcdef:0123456789abcdeg", "entry 2 has the name of entry 1: " + names},
		{"API_TOKENS", ":0123456789abcdef", "entry 1 " + colon},
		{"API_TOKENS", "a.b:0123456789abcdef", "entry 1 " + colon},
		{"API_TOKENS", strings.Repeat("a", 33) + ":0123456789abcdef", "entry 1 " + colon},
		{"API_TOKENS", "0123456789abcdef\n0123456789abcdef", "entry 1 " + invisible + ": separate tokens by commas"},
		{"API_TOKENS", "0123456789abcdefé", "entry 1 " + invisible + ": separate tokens by commas"},
		{"API_KEY", "sk 1", invisible + ": write the key alone, without blanks or line breaks"},
		{"BASE_URL", "openrouter.ai/api/v1", baseURL},
		{"BASE_URL", "ftp://host/v1", baseURL},
		{"BASE_URL", "https://", baseURL},
		{"BASE_URL", "https://user:pass@host/v1", baseURL},
		{"BASE_URL", "https://host/v1?key=1", baseURL},
		{"BASE_URL", "https://host/v1?", baseURL},
		{"BASE_URL", "https://host/v1#a", baseURL},
		{"BASE_URL", "https://host/v1#", baseURL},
		{"BASE_URL", "https://host/%zz", baseURL},
		{"PROVIDERS", "https://host/v1", badName},
		{"PROVIDERS", "=https://host/v1", badName},
		{"PROVIDERS", "OpenAI=https://host/v1", badName},
		{"PROVIDERS", "openai", entry1},
		{"PROVIDERS", "openai=host", entry1},
		{"PROVIDERS", "sim=https://host/v1", "entry 1 is named sim, which is the name of a built-in provider: choose another name"},
		{"PROVIDERS", "file=https://host/v1", "entry 1 " + nameEnds},
		{"PROVIDERS", "a=https://host/v1,a-file=https://host/v1", "entry 2 " + nameEnds},
		{
			"PROVIDERS", "a_b=https://host/v1,a-b=https://host/v1",
			"entry 2 has the name of an earlier one (- and _ count as equal): choose another name",
		},
		{"MODELS", "a", "names one model: list two or more (the same model may be listed twice), or use the mode single"},
		{"MODE", "panel", `is "panel", which is not a mode of a council: use council, ranked, synthesis, vote or single`},
		{
			"MODE", "judge",
			"is judge, but judging answers that exist already is not a mode of a council: use council, ranked, synthesis, vote or single",
		},
		{
			"MODE", "vote", "is vote, which needs an answer_form: write mode and answer_form for the council in a roster, " +
				"which LLM_COUNCIL_ROSTER names (docs/roster.md), or use another mode",
		},
		{"FIRST", "-1", firstRange},
		quoted("FIRST", "all", whole),
		{"MODELS", "a,b,", "entry 3 is empty: remove a comma, or write the missing entry"},
		{"MODELS", strings.Repeat("a,", 12) + "a", "names 13 models, and LLM_COUNCIL_MAX_MODELS is 12: raise it, or list fewer"},
		{"ALLOWED_MODELS", ",a", "entry 1 is empty: remove a comma, or write the missing entry"},
		quoted("MAX_MODELS", "many", whole),
		quoted("MAX_MODELS", "1", " is out of range: use 2 or more"),
		quoted("MAX_SESSIONS", "1.5", whole),
		quoted("MAX_SESSIONS", "99999999999999999999", " is out of range: write a smaller number"),
		quoted("MAX_SESSIONS", "0", atLeast1),
		quoted("TIMEOUT", "10", duration),
		quoted("TIMEOUT", "0", above0),
		quoted("ATTEMPT_TIMEOUT", "1 m", duration),
		quoted("ATTEMPT_TIMEOUT", "-1s", above0),
		quoted("MAX_ATTEMPTS", "3x", whole),
		quoted("MAX_ATTEMPTS", "0", atLeast1),
		quoted("MONITOR_INTERVAL", "daily", duration),
		quoted("MONITOR_INTERVAL", "59s", " is out of range: use a time of 1m or more, or off"),
		quoted("STRAGGLER_GRACE", "2", duration),
		quoted("STRAGGLER_GRACE", "-1s", " is out of range: use a time of 0 or more, or off"),
		quoted("TIMEOUT", "off", duration),
		quoted("DRAIN_TIMEOUT", "30", duration),
		quoted("DRAIN_TIMEOUT", "-1s", " is out of range: use a time of 0 or more"),
		quoted("QUORUM", "most", whole),
		quoted("QUORUM", "-1", " is out of range: use 1 to the number of LLM_COUNCIL_MODELS, or 0 for more than half of them"),
		quoted("MAX_COST_USD", "1$", number),
		quoted("MAX_COST_USD", "0", " is out of range: use an amount above 0"),
		quoted("MAX_COST_USD", "Inf", " is out of range: use an amount above 0"),
		quoted("COST_LIMITS", "firm", " is neither soft nor hard: write one of them"),
		quoted("MAX_COST_USD_PER_DAY", "0", " is out of range: use an amount above 0"),
		quoted("MAX_COST_USD_PER_TOKEN_DAY", "-1", " is out of range: use an amount above 0"),
		quoted("MAX_TOTAL_TOKENS", "1e6", whole),
		quoted("MAX_TOTAL_TOKENS", "0", atLeast1),
		quoted("MAX_OUTPUT_TOKENS", "1k", whole),
		quoted("MAX_OUTPUT_TOKENS", "0", atLeast1),
		quoted("TEMPERATURE", "hot", number),
		quoted("TEMPERATURE", "2.1", " is out of range: use 0 to 2"),
		quoted("TEMPERATURE", "NaN", " is out of range: use 0 to 2"),
		quoted("REVIEW_TEMPERATURE", "0,5", number),
		quoted("REVIEW_TEMPERATURE", "-0.1", " is out of range: use 0 to 2"),
		quoted("ORDER", "Shared", " is not an order: use balanced, per_reviewer or shared"),
		quoted("RANDOM_SEED", "random", whole),
		quoted("RANDOM_SEED", "-7", seeds),
		quoted("RANDOM_SEED", "9007199254740992", seeds),
		quoted("RANDOM_SEED", "123456789012345678901", " is out of range: write a smaller number"),
		quoted("SELF_REVIEW_RATE", "10%", number),
		quoted("SELF_REVIEW_RATE", "1.1", unit),
		quoted("SHADOW_RATE", "10%", number),
		quoted("SHADOW_RATE", "1.1", unit),
		quoted("LABEL_RATE", "-0.1", unit),
		quoted("PARTIAL_BALLOTS", "drop", " is not a policy: use available or tied_last"),
		quoted("BIAS_AUDIT", "on", " is neither true nor false: write one of them"),
		quoted("DEMOGRAPHICS", "false", " is not a backend: use lexicon, llm_judge, embedding or off"),
		quoted("LENGTH_CORRELATION_THRESHOLD", "x", number),
		quoted("LENGTH_CORRELATION_THRESHOLD", "-0.3", unit),
		quoted("POSITION_VARIANCE_THRESHOLD", "x", number),
		quoted("POSITION_VARIANCE_THRESHOLD", "-1", atLeast0),
		quoted("BIAS_PERSISTENCE", "yes", " is neither true nor false: write one of them"),
		quoted("DATA_DIR", "~root/x", " begins with ~, and the home directory is not known: write an absolute path"),
		quoted("BIAS_STORE", "~root/x", " begins with ~, and the home directory is not known: write an absolute path"),
		quoted("BIAS_CONSENT", "research", whole),
		quoted("BIAS_CONSENT", "5", " is out of range: use 0 to 4"),
		quoted("BIAS_CONSENT", "-1", " is out of range: use 0 to 4"),
		quoted("BIAS_WINDOW_SESSIONS", "all", whole),
		quoted("BIAS_WINDOW_SESSIONS", "-1", atLeast0),
		quoted("BIAS_WINDOW_DAYS", "30d", whole),
		quoted("BIAS_WINDOW_DAYS", "-1", atLeast0),
		quoted("MIN_BIAS_SESSIONS", "few", whole),
		quoted("MIN_BIAS_SESSIONS", "9", " is out of range: use 10 or more"),
		quoted("BIAS_FSYNC", "always", " is not a mode: use session, interval or off"),
		quoted("BIAS_RETENTION_DAYS", "30d", whole),
		quoted("BIAS_RETENTION_DAYS", "0", " is out of range: use 1 to 36500"),
		quoted("BIAS_RETENTION_DAYS", "36501", " is out of range: use 1 to 36500"),
		{"NATS_URL", "host:4222", "entry 1 " + natsURL},
		{"NATS_URL", "nats://a:4222,", "entry 2 " + natsURL},
		{"NATS_URL", "nats://a:4222,nats://user:pass@b:4222", "entry 2 " + natsURL},
		quoted("NATS_PREFIX", "a.b", " is not a prefix: use 1 to 32 of a to z, 0 to 9, - and _"),
		quoted("NATS_REPLICAS", "0", " is out of range: use 1 to 5"),
		quoted("NATS_REPLICAS", "6", " is out of range: use 1 to 5"),
		quoted("SESSION_RETENTION", "-1s", " is out of range: use a time of 0 or more"),
		quoted("SESSIONS_KEPT", "-1", " is out of range: use 0 or more"),
		quoted("MAX_QUERY_BYTES", "lots", size),
		quoted("MAX_QUERY_BYTES", "0KiB", atLeast1),
		quoted("LOG_LEVEL", "trace", level),
		quoted("LOG_LEVEL", "info+1", level),
	}
	for _, tt := range tests {
		name, value, problem := tt[0], tt[1], tt[2]
		t.Run(name+"="+value, func(t *testing.T) {
			c, err := load(t, vars{name: value})
			if err == nil {
				t.Fatal("no error")
			}
			if d := cmp.Diff("LLM_COUNCIL_"+name+": "+problem, err.Error()); d != "" {
				t.Error(d)
			}
			if d := diff(config.Config{}, c); d != "" {
				t.Errorf("a Config beside the error:\n%s", d)
			}
		})
	}
}

func TestRelations(t *testing.T) {
	tests := []struct {
		name string
		vars vars
		want string
	}{
		{"models up to the maximum", vars{"MAX_MODELS": "2", "MODELS": "a,b"}, ""},
		{"one model", vars{"MODELS": "a", "MODE": "single"}, ""},
		{
			"two models alone",
			vars{"MODELS": "a,b", "MODE": "single"},
			"LLM_COUNCIL_MODELS: names 2 models, and the mode single asks one: list one, or use another mode",
		},
		{"all members but one begin", vars{"MODELS": "a,b,c", "FIRST": "2"}, ""},
		{
			"all members begin",
			vars{"MODELS": "a,b", "FIRST": "2"},
			"LLM_COUNCIL_FIRST: is 2, which is out of range: use 1 or more, but less than the number of members, or remove it to ask all " +
				"members at once",
		},
		{
			"the first of one",
			vars{"MODELS": "a", "MODE": "single", "FIRST": "1"},
			"LLM_COUNCIL_FIRST: is 1, which does not go with the mode single: remove it, or use another mode",
		},
		{
			"a roster and a mode",
			vars{"ROSTER": "/roster.yaml", "MODE": "ranked", "FIRST": "1"},
			"LLM_COUNCIL_ROSTER: cannot be set together with LLM_COUNCIL_MODE, LLM_COUNCIL_FIRST: unset them, because the roster names " +
				"models and councils",
		},
		{"a quorum of all", vars{"MODELS": "a,b", "QUORUM": "2"}, ""},
		{
			"a quorum of more than all",
			vars{"MODELS": "a,b", "QUORUM": "3"},
			`LLM_COUNCIL_QUORUM: "3" is out of range: use 1 to the number of LLM_COUNCIL_MODELS, or 0 for more than half of them`,
		},
		{
			"hard limits of a day without a bound of a session",
			vars{"COST_LIMITS": "hard", "MAX_COST_USD_PER_TOKEN_DAY": "1"},
			`LLM_COUNCIL_COST_LIMITS: "hard" needs a limit for the cost of each session, because there is a daily limit: set LLM_COUNCIL_MAX_COST_USD or ` +
				"LLM_COUNCIL_MAX_OUTPUT_TOKENS",
		},
		{"hard limits with one", vars{"COST_LIMITS": "hard", "MAX_COST_USD_PER_DAY": "1", "MAX_OUTPUT_TOKENS": "100"}, ""},
		{
			"a limit of a day without a file",
			vars{"DATA_DIR": "off", "MAX_COST_USD_PER_DAY": "1"},
			`LLM_COUNCIL_DATA_DIR: "off" is off, and a daily limit needs a file there: name a directory, or unset it`,
		},
		{
			"a judge of every session without a model",
			vars{"DEMOGRAPHICS": "llm_judge"},
			`LLM_COUNCIL_DEMOGRAPHICS: "llm_judge" needs a judge: name a model in LLM_COUNCIL_JUDGE_MODEL, or use lexicon`,
		},
		{
			"embeddings of every session without a model",
			vars{"DEMOGRAPHICS": "embedding"},
			`LLM_COUNCIL_DEMOGRAPHICS: "embedding" needs embeddings: name a model in LLM_COUNCIL_EMBEDDING_MODEL, or use lexicon`,
		},
		{"embeddings of every session", vars{"DEMOGRAPHICS": "embedding", "EMBEDDING_MODEL": "e"}, ""},
		{"events to a file", vars{"EVENT_SINK": "/srv/sent.jsonl"}, ""},
		{
			"events to the file in which they wait",
			vars{"EVENT_SINK": "/srv/events.jsonl", "DATA_DIR": "/srv"},
			"LLM_COUNCIL_EVENT_SINK: is the file in which events wait to be sent: name another file",
		},
		{
			"events without a directory",
			vars{"EVENTS_INTAKE": "true", "DATA_DIR": "off"},
			`LLM_COUNCIL_DATA_DIR: "off" is off, and events need files there: name a directory, or unset it`,
		},
		{
			"events without encryption",
			vars{"EVENT_SINK": "http://events.example.com"},
			"LLM_COUNCIL_EVENT_SINK: is not an https address: use https, or an IP address in a network of LLM_COUNCIL_EVENT_ALLOW",
		},
		{"a webhook without a secret", vars{"WEBHOOK_URL": "https://a.example"}, "LLM_COUNCIL_WEBHOOK_URL: is set, and " +
			"LLM_COUNCIL_WEBHOOK_SECRET is not: " + writeWebhookSecret},
		{"a webhook secret without an address", vars{"WEBHOOK_SECRET": webhookSecret}, "LLM_COUNCIL_WEBHOOK_SECRET: is set, and " +
			"LLM_COUNCIL_WEBHOOK_URL is not: name the address, or unset the secret"},
		{"webhooks without https", vars{"WEBHOOK_URL": "http://a.example", "WEBHOOK_SECRET": webhookSecret}, "LLM_COUNCIL_WEBHOOK_URL: " +
			"is not an https address: use https, or an IP address in a network of LLM_COUNCIL_EVENT_ALLOW"},
		{"webhooks to an allowed address", vars{
			"WEBHOOK_URL": "http://10.1.2.3:8080/hooks", "EVENT_ALLOW": "10.1.0.0/16", "WEBHOOK_SECRET": webhookSecret,
		}, ""},
		{
			"webhooks without files",
			vars{"WEBHOOK_URL": "https://a.example", "WEBHOOK_SECRET": webhookSecret, "DATA_DIR": "off"},
			"LLM_COUNCIL_DATA_DIR: \"off\" is off, and webhooks wait in a file there: name a directory, or unset it",
		},
		{"webhooks with a query", vars{"WEBHOOK_URL": "https://a.example?key=k", "WEBHOOK_SECRET": webhookSecret}, "LLM_COUNCIL_WEBHOOK_URL: " +
			"is not an address: write it as in https://host/webhooks, without user, query or fragment"},
		{"a webhook secret without its prefix", badWebhookSecret(strings.TrimPrefix(webhookSecret, "whsec_")), badWebhookMessage},
		{"a webhook secret that is no base64", badWebhookSecret("whsec_-----"), badWebhookMessage},
		{"a webhook secret of 23 bytes", badWebhookSecret("whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 23))), badWebhookMessage},
		{"a webhook secret of 65 bytes", badWebhookSecret("whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 65))), badWebhookMessage},
		{"three webhook secrets", badWebhookSecret(webhookSecret + "," + webhookSecret + "," + webhookSecret), badWebhookMessage},
		{"events to an allowed address", vars{"EVENT_SINK": "http://10.1.2.3:8080/v1/events", "EVENT_ALLOW": "10.1.0.0/16"}, ""},
		{
			"events to an address with a key",
			vars{"EVENT_SINK": "https://key@events.example.com"},
			"LLM_COUNCIL_EVENT_SINK: is neither a file nor an address: write an address as in https://host/v1/events, without user, query or fragment",
		},
		{
			"a token for a file",
			vars{"EVENT_TOKEN": "a-secret-of-sixteen"},
			"LLM_COUNCIL_EVENT_TOKEN: is set, and LLM_COUNCIL_EVENT_SINK is not an address: name one, or unset the token",
		},
		{
			"a network with bits behind its length",
			vars{"EVENT_ALLOW": "10.1.2.3/16"},
			"LLM_COUNCIL_EVENT_ALLOW: entry 1 is not a network: write it as in 10.1.0.0/16, with zeros after the first 16 bits",
		},
		{
			"consent 4 without a secret",
			vars{"BIAS_CONSENT": "4"},
			"LLM_COUNCIL_HASH_SECRET: is not set, and LLM_COUNCIL_BIAS_CONSENT is 4: set it to a long random text, or choose a lower " +
				"consent level",
		},
		{"consent 3 without a secret", vars{"BIAS_CONSENT": "3"}, ""},
		{
			"labels without a secret",
			vars{"LABEL_RATE": "0.1"},
			"LLM_COUNCIL_HASH_SECRET: is not set, and LLM_COUNCIL_LABEL_RATE is above 0: set it to a long random text, because feedback is " +
				"refused without it",
		},
		{
			"a shadow rate without records",
			vars{"SHADOW_RATE": "0.1", "BIAS_PERSISTENCE": "false"},
			"LLM_COUNCIL_SHADOW_RATE: is above 0, but its results would not be kept: set it to 0, or keep bias records and " +
				"name a directory in LLM_COUNCIL_DATA_DIR",
		},
		{
			"a label rate without a directory",
			vars{"LABEL_RATE": "0.1", "HASH_SECRET": "a-secret-of-sixteen", "DATA_DIR": "off"},
			"LLM_COUNCIL_LABEL_RATE: is above 0, but its results would not be kept: set it to 0, or keep bias records and " +
				"name a directory in LLM_COUNCIL_DATA_DIR",
		},
		{
			"a key without a provider",
			vars{"PROVIDERS": "a=https://host/v1", "API_KEY_A": "k", "API_KEY_B": "k"},
			"LLM_COUNCIL_API_KEY_B: LLM_COUNCIL_PROVIDERS names no provider with this key: add name=url there, or unset this variable",
		},
		{
			"a provider's key that no header can carry",
			vars{"PROVIDERS": "a=https://host/v1", "API_KEY_A": "k\nl"},
			"LLM_COUNCIL_API_KEY_A: has a character that is not visible ASCII, and HTTP headers allow no other: write the key alone, " +
				"without blanks or line breaks",
		},
		{"a cluster and a directory", vars{"NATS_URL": "nats://a:4222", "DATA_DIR": "/data"}, ""},
		{
			"a cluster and a key",
			vars{"NATS_URL": "nats://a:4222", "SESSIONS_KEY": "sixteen letters."},
			"LLM_COUNCIL_SESSIONS_KEY: is set, but a cluster keeps the sessions (LLM_COUNCIL_NATS_URL), " +
				"and only the cluster can encrypt them: unset one of them",
		},
		{
			"the placeholder of the documentation",
			vars{"API_KEY_<NAME>": "k"},
			"LLM_COUNCIL_API_KEY_<NAME>: LLM_COUNCIL_PROVIDERS names no provider with this key: add name=url there, or unset this variable",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := load(t, tt.vars)
			if d := cmp.Diff(tt.want, text(err)); d != "" {
				t.Error(d)
			}
		})
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Limits grow with the settings on which they depend, and never overflow.
func TestConstantsThatGrow(t *testing.T) {
	for _, tt := range []struct {
		query, kept     string
		body, keptBytes config.Bytes
	}{
		{"1", "0", 1 << 20, 256 << 20},
		{"1MiB", "10000", 4 << 20, 10000 * 256 << 10},
		{"8589934591GiB", "9223372036854775807", 4 << 50, 1 << 50},
	} {
		c := mustLoad(t, vars{"MAX_QUERY_BYTES": tt.query, "SESSIONS_KEPT": tt.kept})
		if c.MaxBodyBytes != tt.body || c.SessionsKeptBytes != tt.keptBytes {
			t.Errorf("%s and %s: a body of %d, sessions of %d", tt.query, tt.kept, c.MaxBodyBytes, c.SessionsKeptBytes)
		}
	}
}

func TestAttemptTimeoutIsCapped(t *testing.T) {
	c := mustLoad(t, vars{"TIMEOUT": "2m", "ATTEMPT_TIMEOUT": "5m"})
	if c.AttemptTimeout != 2*time.Minute {
		t.Errorf("AttemptTimeout = %v, want that of Timeout, 2m", c.AttemptTimeout)
	}
}

func TestHomeUnknown(t *testing.T) {
	mustLoad(t, nil) // clears the settings
	t.Setenv("HOME", "")
	_, err := config.Load()
	want := `LLM_COUNCIL_BIAS_STORE: "~/.llm-council/bias_metrics.jsonl" begins with ~, and the home directory is not known: write an absolute path`
	if text(err) != want {
		t.Errorf("got %q, want %q", text(err), want)
	}
	t.Setenv("LLM_COUNCIL_BIAS_STORE", "/data/x.jsonl")
	if _, err := config.Load(); err != nil {
		t.Errorf("with an absolute path: %v", err)
	}
}

// Every problem is reported once, whatever the stage of Load that finds it, and
// a value that does not parse is not reported a second time by a range.
func TestAllProblemsAtOnce(t *testing.T) {
	_, err := load(t, vars{
		"TIMEOUT": "10", "MAX_SESSIONS": "x", "MAX_COST_USD": "free", "BIAS_CONSENT": "9", "MODELS": "one", "TIMOUT": "1m",
		"API_KEY_FILE": "/nonexistent/key", "API_TOKENS": "short", "ADDR": "x",
	})
	want := `LLM_COUNCIL_ADDR: "x" is not host:port with a port from 0 to 65535: write it as in 127.0.0.1:8080
LLM_COUNCIL_API_KEY_FILE: "/nonexistent/key" cannot be read (no such file or directory): write the path of a file that councild can read
LLM_COUNCIL_API_TOKENS: entry 1 has fewer than 16 characters: use a long random text, such as openssl rand -hex 32 prints
LLM_COUNCIL_BIAS_CONSENT: "9" is out of range: use 0 to 4
LLM_COUNCIL_MAX_COST_USD: "free" is not a number: write it as in 0.5
LLM_COUNCIL_MAX_SESSIONS: "x" is not a whole number: write digits only
LLM_COUNCIL_MODELS: names one model: list two or more (the same model may be listed twice), or use the mode single
LLM_COUNCIL_TIMEOUT: "10" is not a duration: write a number and a unit, such as 30s or 10m
LLM_COUNCIL_TIMOUT: there is no such setting: did you mean LLM_COUNCIL_TIMEOUT?`
	if d := cmp.Diff(want, text(err)); d != "" {
		t.Error(d)
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || len(joined.Unwrap()) != 9 {
		t.Errorf("the error is not nine joined ones: %T", err)
	}
}

// What callers check beside Load is reported with all the rest, in its order.
func TestChecks(t *testing.T) {
	_, _ = load(t, nil) // clears the environment
	t.Setenv("LLM_COUNCIL_LEXICON", "/no/lexicon")
	t.Setenv("LLM_COUNCIL_ORDER", "random")
	t.Setenv("LLM_COUNCIL_ADDR", "nowhere")
	_, err := config.Load(func(c config.Config) error { return fmt.Errorf("LLM_COUNCIL_LEXICON: %s", c.Lexicon) },
		func(config.Config) error { return nil })
	lines := strings.Split(text(err), "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[0], "LLM_COUNCIL_ADDR: ") || lines[1] != "LLM_COUNCIL_LEXICON: /no/lexicon" {
		t.Errorf("got %q", lines)
	}
}

func TestUnknown(t *testing.T) {
	tests := []struct{ name, suggestion string }{
		{"MODEL", "MODELS"},
		{"TIMOEUT", "TIMEOUT"},
		{"API_TOKEN", "API_TOKENS"},
		{"APIKEY", "API_KEY"},
		{"HASH_SECRET_FIEL", "HASH_SECRET_FILE"},
		{"ADDR_FILE", ""}, // not a secret
		{"COLOUR", ""},
		{"", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			want := "LLM_COUNCIL_" + tt.name + ": there is no such setting: unset it"
			if tt.suggestion != "" {
				want = "LLM_COUNCIL_" + tt.name + ": there is no such setting: did you mean LLM_COUNCIL_" + tt.suggestion + "?"
			}
			_, err := load(t, vars{tt.name: "sk-misplaced"})
			if d := cmp.Diff(want, text(err)); d != "" {
				t.Error(d)
			}
		})
	}
}

// A name of an earlier version ends the start with what replaces it. None of these is a setting, and no remedy names one.
func TestReplacedNames(t *testing.T) {
	known := map[string]bool{}
	for _, s := range (config.Config{}).Settings() {
		known[s.Name] = true
	}
	for _, r := range config.ReplacedNames() {
		_, err := load(t, vars{r.Name: "0123456789abcdef"})
		want := "LLM_COUNCIL_" + r.Name + ": is no longer a setting: unset it; " + r.Remedy
		if d := cmp.Diff(want, text(err)); d != "" {
			t.Error(d)
		}
		for _, name := range regexp.MustCompile(`LLM_COUNCIL_[A-Z_]*[A-Z]`).FindAllString(r.Remedy, -1) {
			if !known[name] {
				t.Errorf("the remedy of %s names %s, which is no setting", r.Name, name)
			}
		}
		if known["LLM_COUNCIL_"+r.Name] {
			t.Errorf("%s is a setting", r.Name)
		}
	}
}

// What councild keeps lies in DATA_DIR, without it beside the records.
func TestDataDir(t *testing.T) {
	for name, tt := range map[string]struct {
		vars         vars
		records, dir string
		named        bool
	}{
		"nothing is set":     {nil, home + "/.llm-council/bias_metrics.jsonl", home + "/.llm-council", false},
		"BIAS_STORE":         {vars{"BIAS_STORE": "/data/b.jsonl"}, "/data/b.jsonl", "/data", false},
		"DATA_DIR":           {vars{"DATA_DIR": "/data"}, "/data/bias_metrics.jsonl", "/data", true},
		"both":               {vars{"DATA_DIR": "/data", "BIAS_STORE": "/b.jsonl"}, "/b.jsonl", "/data", true},
		"off":                {vars{"DATA_DIR": "off"}, home + "/.llm-council/bias_metrics.jsonl", "", false},
		"off and BIAS_STORE": {vars{"DATA_DIR": "off", "BIAS_STORE": "/b.jsonl"}, "/b.jsonl", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			c := mustLoad(t, tt.vars)
			sessions, mustKeep := c.SessionsDir()
			costs, mustCount := c.SpendFile()
			evidence, mustGather := c.EvidenceFile()
			got := []any{c.BiasStore, mustKeep, mustCount, mustGather, sessions, costs, evidence, c.CalibrationFile(), c.EventFile(), c.IntakeFile(), c.GateFile()}
			want := []any{tt.records, tt.named, tt.named, tt.named}
			for _, file := range []string{
				"sessions", "spend.jsonl", "evidence.jsonl", "calibrations.jsonl", "events.jsonl", "events-intake.jsonl", "gate.jsonl",
			} {
				if tt.dir == "" {
					want = append(want, "")
				} else {
					want = append(want, filepath.Join(tt.dir, file))
				}
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Error(d)
			}
		})
	}
	c := mustLoad(t, nil)
	c.SessionsInMemory = true
	if dir, _ := c.SessionsDir(); dir != "" {
		t.Errorf("sessions in memory are kept in %q", dir)
	}
}

func TestUnprefixedVariablesAreNotRead(t *testing.T) {
	t.Setenv("ADDR", "0.0.0.0:1")
	t.Setenv("API_KEY", "sk-1")
	t.Setenv("MODELS", "a,b")
	if d := diff(defaults(), mustLoad(t, nil)); d != "" {
		t.Error(d)
	}
}

func TestOff(t *testing.T) {
	c := mustLoad(t, vars{
		"MONITOR_INTERVAL": "off", "STRAGGLER_GRACE": "off", "MAX_OUTPUT_TOKENS": "off", "BIAS_RETENTION_DAYS": "off", "MAX_COST_USD": "off",
		"MAX_TOTAL_TOKENS": " off ", "TEMPERATURE": "off",
	})
	if d := diff(defaults(), c); d != "" {
		t.Error(d)
	}
	i := slices.IndexFunc(c.Settings(), func(s config.Setting) bool { return s.Name == "LLM_COUNCIL_STRAGGLER_GRACE" })
	if s := c.Settings()[i]; s.Value != "off" || s.Source != config.SourceEnvironment {
		t.Errorf("shown as %+v", s)
	}
}

func TestEmptyCountsAsUnset(t *testing.T) {
	for _, blank := range []string{"", " ", "\r\n\t"} {
		v := vars{"NO_SUCH_SETTING": blank, "API_KEY_NOBODY": blank}
		for _, s := range (config.Config{}).Settings() {
			name := strings.TrimPrefix(s.Name, "LLM_COUNCIL_")
			v[name] = blank
			v[name+"_FILE"] = blank
		}
		if d := diff(defaults(), mustLoad(t, v)); d != "" {
			t.Errorf("with %q:\n%s", blank, d)
		}
	}
}

func TestLoadLeavesTheEnvironmentAsItWas(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("sk-1"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string]vars{
		"valid":   {"TIMEOUT": " 1m ", "ADDR": "", "API_KEY_FILE": key},
		"invalid": {"TIMEOUT": " 1 ", "ADDR": "", "API_KEY_FILE": key, "NO_SUCH": "x"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _ = load(t, v) // sets the variables
			before := slices.Sorted(slices.Values(os.Environ()))
			_, _ = config.Load()
			if d := cmp.Diff(before, slices.Sorted(slices.Values(os.Environ()))); d != "" {
				t.Error(d)
			}
			if got := os.Getenv("LLM_COUNCIL_TIMEOUT"); got != v["TIMEOUT"] {
				t.Errorf("LLM_COUNCIL_TIMEOUT is %q, was %q", got, v["TIMEOUT"])
			}
		})
	}
}

func TestProviderNames(t *testing.T) {
	c := mustLoad(t, vars{"PROVIDERS": "openai=https://api.openai.com/v1"})
	for model, want := range map[string]string{
		"openai:gpt-5":     "openai",
		"openai/gpt-5":     "",
		"openai":           "",
		"sim:alice":        "sim",
		"sim":              "",
		"llama3:8b":        "",
		"x/y:free":         "",
		":x":               "",
		"openai:x/y:free":  "openai",
		"anthropic:claude": "",
	} {
		if got, _ := council.SplitModel(model, c.ProviderNames()); got != want {
			t.Errorf("%q goes to %q, want %q", model, got, want)
		}
	}
}

func TestRequireCouncil(t *testing.T) {
	const (
		noModels = "LLM_COUNCIL_MODELS: is not set: list two or more models, separated by commas, and set LLM_COUNCIL_API_KEY, " +
			`or try "councild demo", which needs neither`
		noKey = `LLM_COUNCIL_API_KEY: is not set, and "x" goes to https://openrouter.ai/api/v1, which asks for a key: ` +
			`set it, change LLM_COUNCIL_BASE_URL, or try "councild demo"`
	)
	provider := vars{"PROVIDERS": "p=http://localhost:1/v1", "MODELS": "p:a,sim:b"}
	tests := []struct {
		name string
		vars vars
		want string
	}{
		{"nothing", nil, noModels},
		{"a chairman alone", vars{"CHAIRMAN": "x"}, noKey + "\n" + noModels},
		{"no key", vars{"MODELS": "sim:a,x,y"}, noKey},
		{"the default written out", vars{"MODELS": "x,y", "BASE_URL": "https://openrouter.ai/api/v1/"}, noKey},
		{"a key", vars{"MODELS": "x,y", "API_KEY": "k"}, ""},
		{"another default provider", vars{"MODELS": "x,y", "BASE_URL": "http://localhost:11434/v1"}, ""},
		{"other providers only", provider, ""},
		{"chairman without key", with(provider, vars{"CHAIRMAN": "x"}), noKey},
		{"allowed model without key", with(provider, vars{"ALLOWED_MODELS": "x"}), noKey},
		{
			"another provider without key",
			vars{"PROVIDERS": "claude=https://api.anthropic.com/v1,mine=https://llm.test/v1", "MODELS": "claude:a,mine:b"},
			`LLM_COUNCIL_API_KEY_CLAUDE: is not set, and "claude:a" goes to https://api.anthropic.com/v1, which asks for a key: set it`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("OPENROUTER_API_KEY", "")
			if d := cmp.Diff(tt.want, text(mustLoad(t, tt.vars).RequireCouncil())); d != "" {
				t.Error(d)
			}
		})
	}
}

// Settings of llm-council, which share the prefix LLM_COUNCIL_, are answered with what councild has instead.
func TestSettingsOfLLMCouncil(t *testing.T) {
	t.Setenv("OPENROUTER_API_KEY", "sk-or-secret")
	for name, tt := range map[string]struct {
		vars vars
		want string
	}{
		"no models": {nil, "LLM_COUNCIL_MODELS: is not set: list two or more models, separated by commas, " +
			`and set LLM_COUNCIL_API_KEY=$OPENROUTER_API_KEY, or try "councild demo", which needs neither`},
		"no key": {vars{"MODELS": "x,y"}, `LLM_COUNCIL_API_KEY: is not set, and "x" goes to https://openrouter.ai/api/v1, ` +
			"which asks for a key: set it to the value of OPENROUTER_API_KEY, which councild does not read"},
		"our key": {vars{"MODELS": "x,y", "API_KEY": "k"}, ""},
		"another provider": {
			vars{"MODELS": "x,y", "BASE_URL": "https://api.openai.com/v1"},
			`LLM_COUNCIL_API_KEY: is not set, and "x" goes to https://api.openai.com/v1, which asks for a key: ` +
				`set it, change LLM_COUNCIL_BASE_URL, or try "councild demo"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(tt.want, text(mustLoad(t, tt.vars).RequireCouncil())); d != "" {
				t.Error(d)
			}
		})
	}
	for mode, want := range map[string]string{
		"consensus": `LLM_COUNCIL_MODE: is "consensus", which is not a mode of a council: ` +
			"unset it, because councild writes one answer by default",
		"debate": `LLM_COUNCIL_MODE: is "debate", which is not a mode of a council: ` +
			"unset it, because every answer of councild comes with a map of where its members disagree",
	} {
		_, err := load(t, vars{"MODELS": "x,y", "MODE": mode})
		if d := cmp.Diff(want, text(err)); d != "" {
			t.Error(d)
		}
	}
}

// Warnings tells what may be meant, and is silent about what is common.
func TestWarnings(t *testing.T) {
	const (
		url    = "http://localhost:11434/v1"
		noPath = "LLM_COUNCIL_BASE_URL: http://localhost:11434 has no path, and most providers answer under /v1 only: write " +
			"http://localhost:11434/v1 if calls fail with HTTP 404"
		noPathOf = "LLM_COUNCIL_PROVIDERS: http://10.0.0.1:8000 has no path, and most providers answer under /v1 only: write " +
			"http://10.0.0.1:8000/v1 if calls fail with HTTP 404"
		noKey = `LLM_COUNCIL_API_KEY_MY_LLM: is not set, and "my-llm:a" goes to https://llm.test/v1: set it if calls fail with HTTP 401`
	)
	unknown := func(name, model string) string {
		return fmt.Sprintf(`LLM_COUNCIL_PROVIDERS: no provider has the name %q, so the default provider gets the whole name %q: `+
			`add %s=URL if it is a provider`, name, model, name)
	}
	for name, tt := range map[string]struct {
		vars vars
		want []string
	}{
		"nothing":                        {nil, nil},
		"simulated models":               {vars{"MODELS": "sim:amber,sim:birch"}, nil},
		"no path":                        {vars{"BASE_URL": "http://localhost:11434/", "MODELS": "a,b"}, []string{noPath}},
		"no path, and nobody goes there": {vars{"BASE_URL": "http://localhost:11434", "MODELS": "sim:a,sim:b"}, nil},
		"no path of another": {
			vars{"BASE_URL": url, "PROVIDERS": "x=http://10.0.0.1:8000,y=http://10.0.0.2:8000", "MODELS": "x:a,b"}, []string{noPathOf},
		},
		"the whole path": {
			vars{"BASE_URL": url + "/chat/completions", "MODELS": "a,b"},
			[]string{"LLM_COUNCIL_BASE_URL: " + url +
				"/chat/completions ends in /chat/completions, which councild adds to every base URL: leave that end out"},
		},
		"no key": {vars{"PROVIDERS": "my-llm=https://llm.test/v1", "MODELS": "my-llm:a,my-llm:b"}, []string{noKey}},
		"no key, and another machine": {
			vars{"PROVIDERS": "my-llm=http://llm.test/v1", "MODELS": "my-llm:a,my-llm:b"}, []string{strings.Replace(noKey, "https", "http", 1)},
		},
		"no key, and a private network": {
			vars{"PROVIDERS": "a=http://192.168.1.5:1/v1,b=http://ollama:1/v1,c=http://[::1]:1/v1", "MODELS": "a:x,b:x,c:x"}, nil,
		},
		"a known host, and no version": {
			vars{"BASE_URL": "https://api.openai.com/openai", "API_KEY": "k", "MODELS": "a,b"},
			[]string{"LLM_COUNCIL_BASE_URL: https://api.openai.com/openai has no version such as /v1 in its path: " +
				"councild check finds the right address"},
		},
		"a key": {vars{"PROVIDERS": "my-llm=https://llm.test/v1", "API_KEY_MY_LLM": "k", "MODELS": "my-llm:a,my-llm:b"}, nil},
		"ids with a colon": {
			vars{
				"BASE_URL": url, "PROVIDERS": "local=" + url,
				"MODELS": "llama3:8b,x/y:free,mistral:7b-instruct-q4_0,deepseek-r1:latest,hf.co/x:Q4,local:llama3:8b,phi3:mini,yi:6b",
			}, nil,
		},
		"a misspelt name": {
			vars{"BASE_URL": url, "PROVIDERS": "local=" + url, "MODELS": "lokal:a,b"},
			[]string{unknown("lokal", "lokal:a")},
		},
		"a misspelt sim": {vars{"BASE_URL": url, "MODELS": "slim:amber,b"}, []string{unknown("slim", "slim:amber")}},
		"a name that is known": {
			vars{"BASE_URL": url, "MODELS": "a,b", "CHAIRMAN": "openai:gpt-5"},
			[]string{unknown("openai", "openai:gpt-5")},
		},
		"an id behind a name": {vars{"BASE_URL": url, "MODELS": "a,b", "CHAIRMAN": "or:x/y"}, []string{unknown("or", "or:x/y")}},
		"an id with two colons": {
			vars{"BASE_URL": url, "MODELS": "a,b", "ALLOWED_MODELS": "box:llama3:8b"},
			[]string{unknown("box", "box:llama3:8b")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := mustLoad(t, tt.vars)
			c.Mode = council.ModeSynthesis // TestTwoMembersReviewInVain is about reviews
			if d := cmp.Diff(tt.want, c.Warnings()); d != "" {
				t.Error(d)
			}
		})
	}
}

// The reviews of two members rank nothing.
func TestTwoMembersReviewInVain(t *testing.T) {
	two := []string{"LLM_COUNCIL_MODELS: has two members: each reviews only the other's answer, so the reviews cost money and " +
		"rank nothing: add a third member, or set LLM_COUNCIL_MODE=synthesis"}
	for _, tt := range []struct {
		models, mode string
		want         []string
	}{
		{"sim:a,sim:b", "council", two},
		{"sim:a,sim:b", "ranked", two},
		{"sim:a,sim:b", "synthesis", nil},
		{"sim:a,sim:b,sim:c", "council", nil},
	} {
		if d := cmp.Diff(tt.want, mustLoad(t, vars{"MODELS": tt.models, "MODE": tt.mode}).Warnings()); d != "" {
			t.Errorf("%s in mode %s: %s", tt.models, tt.mode, d)
		}
	}
}

// A value that keeps the quotes around it is used as it is, with a warning that names the variable.
func TestQuotesAreNotRemoved(t *testing.T) {
	const url = "http://localhost:11434/v1"
	warning := func(variable string) string {
		return "LLM_COUNCIL_" + variable + ": has quotes, which are part of the value: remove them; docker run --env-file does not remove them, as a shell does"
	}
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("\"sk-test-000000000000\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		vars vars
		want []string
	}{
		"key and models": {
			vars{"BASE_URL": url, "API_KEY": `"sk-test-000000000000"`, "MODELS": `"a,b,c"`},
			[]string{warning("API_KEY"), warning("MODELS")},
		},
		"single quotes":    {vars{"BASE_URL": url, "MODELS": `'a,b,c'`}, []string{warning("MODELS")}},
		"backticks":        {vars{"BASE_URL": url, "MODELS": "`a,b,c`"}, []string{warning("MODELS")}},
		"quotes of a page": {vars{"BASE_URL": url, "MODELS": "“a,b,c”"}, []string{warning("MODELS")}},
		"one entry":        {vars{"BASE_URL": url, "MODELS": `a, "b" ,c`}, []string{warning("MODELS")}},
		"a file's content": {vars{"BASE_URL": url, "API_KEY_FILE": key, "MODELS": "a,b"}, []string{warning("API_KEY")}},
		"another setting":  {vars{"BASE_URL": url, "MODELS": "a,b", "CONFIG_VERSION": `"2026-11"`}, []string{warning("CONFIG_VERSION")}},
		"quotes inside":    {vars{"BASE_URL": url, "MODELS": `a"b,it's`, "CONFIG_VERSION": `the "new" one's`}, nil},
		"one quote":        {vars{"BASE_URL": url, "MODELS": `",a`}, nil},
		"no quotes":        {vars{"BASE_URL": url, "API_KEY": "sk-test-000000000000", "MODELS": "a,b,c"}, nil},
		"nothing is set":   {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c := mustLoad(t, tt.vars)
			c.Mode = council.ModeSynthesis // TestTwoMembersReviewInVain is about reviews
			if d := cmp.Diff(tt.want, c.Warnings()); d != "" {
				t.Error(d)
			}
		})
	}
	t.Setenv("OTEL_SERVICE_NAME", `"council"`)
	if got := mustLoad(t, nil).Warnings(); len(got) != 1 || !strings.HasPrefix(got[0], "OTEL_SERVICE_NAME: has quotes") {
		t.Errorf("of OpenTelemetry's variables: %q", got)
	}
	// Where the value is refused, the error says so too.
	for variable, value := range map[string]string{
		"TIMEOUT": `"10m"`, "BASE_URL": `"` + url + `"`, "PROVIDERS": `'x=` + url + `'`, "METRICS": `"true"`, "ADDR": `"127.0.0.1:8080"`,
		"MAX_QUERY_BYTES": `'1MiB'`, "CORS_ORIGINS": `"https://chat.example.com"`, "API_KEY_FILE": `"` + key + `"`, "LOG_LEVEL": "“info”",
	} {
		_, err := load(t, vars{variable: value})
		if err == nil || !strings.HasPrefix(err.Error(), "LLM_COUNCIL_"+variable+": ") ||
			!strings.HasSuffix(err.Error(), "; its quotes belong to the value: remove them first") {
			t.Errorf("%s=%s: %v", variable, value, err)
		}
	}
}

// Kubernetes sets variables for each Service of a namespace, also for one that is named llm-council. They are no settings.
func TestServiceLinksArePassedOver(t *testing.T) {
	for name, links := range map[string]vars{
		"a service": {
			"SERVICE_HOST": "10.96.0.12", "SERVICE_PORT": "80", "PORT": "tcp://10.96.0.12:80", "PORT_80_TCP": "tcp://10.96.0.12:80",
			"PORT_80_TCP_PROTO": "tcp", "PORT_80_TCP_PORT": "80", "PORT_80_TCP_ADDR": "10.96.0.12",
		},
		"named ports": {
			"SERVICE_HOST": "10.96.0.12", "SERVICE_PORT": "8080", "SERVICE_PORT_HTTP": "8080", "SERVICE_PORT_METRICS_2": "9090",
			"PORT": "tcp://10.96.0.12:8080", "PORT_8080_TCP": "tcp://10.96.0.12:8080", "PORT_8080_TCP_PROTO": "tcp",
			"PORT_8080_TCP_PORT": "8080", "PORT_8080_TCP_ADDR": "10.96.0.12", "PORT_9090_TCP_ADDR": "10.96.0.12",
		},
		"another protocol": {"PORT": "udp://10.96.0.12:53", "PORT_53_UDP": "udp://10.96.0.12:53", "PORT_53_UDP_PROTO": "udp", "PORT_5_SCTP": "sctp://10.0.0.1:5"},
		"IPv6":             {"SERVICE_HOST": "fd00::12", "PORT": "tcp://[fd00::12]:80", "PORT_80_TCP_ADDR": "fd00::12"},
		"of another name":  {"WEB_SERVICE_HOST": "10.96.0.12", "WEB_SERVICE_PORT": "80", "NATS_PORT": "tcp://10.0.0.1:4222", "NATS_PORT_4222_TCP_PORT": "4222"},
	} {
		t.Run(name, func(t *testing.T) {
			c := mustLoad(t, links)
			if d := diff(defaults(), c); d != "" {
				t.Errorf("they changed a setting: %s", d)
			}
			var want []string
			for variable := range links {
				want = append(want, "LLM_COUNCIL_"+variable)
			}
			slices.Sort(want)
			if d := cmp.Diff(want, c.ServiceLinks()); d != "" {
				t.Error(d)
			}
		})
	}
	for variable, value := range map[string]string{
		"PORT": "8080", "PROT": "tcp://10.96.0.12:80", "SERVICE_HOST": "council.example", "SERVICE_PORT": "http", "PORT_80_TCP": "80",
		"PORT_HTTP_TCP": "tcp://10.96.0.12:80", "PORT_80_TCP_NAME": "x", "SERVICE": "10.96.0.12", "PORT_80_TCP_PROTO": "http",
	} {
		if _, err := load(t, vars{variable: value}); err == nil || !strings.Contains(err.Error(), "LLM_COUNCIL_"+variable+": there is no such setting") {
			t.Errorf("%s=%s: %v", variable, value, err)
		}
	}
}

func TestTracing(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "https://me:secret@collector.test")
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=secret")
	t.Setenv("OTEL_SERVICE_NAME", "council")
	for _, s := range config.Tracing() {
		if strings.Contains(s.Value, "secret") {
			t.Errorf("%s shows a secret", s.Name)
		}
		if given := s.Source == config.SourceEnvironment; given != (os.Getenv(s.Name) != "") || s.Meaning == "" ||
			!given && s.Value != s.Default {
			t.Errorf("%+v", s)
		}
	}
}

func TestSettings(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range (config.Config{}).Settings() {
		if seen[s.Name] || !strings.HasPrefix(s.Name, "LLM_COUNCIL_") || s.Meaning == "" || strings.Contains(s.Meaning, "\n") {
			t.Errorf("not a setting of its own with a meaning of one line: %+v", s)
		}
		if s.Value != s.Default || s.Source != config.SourceDefault {
			t.Errorf("not the default: %+v", s)
		}
		seen[s.Name] = true
	}

	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte("a secret from a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := mustLoad(t, vars{
		"PROVIDERS": "a-b=http://localhost:1/v1,c=http://localhost:2/v1", "API_KEY_A_B": "k", "API_KEY": "k",
		"TIMEOUT": "60s", "HASH_SECRET_FILE": file,
	})
	type row struct {
		Name, Value string
		Source      config.Source
		Secret      bool
	}
	var got []row
	for _, s := range c.Settings() {
		if s.Source != config.SourceDefault || s.Secret {
			got = append(got, row{s.Name, s.Value, s.Source, s.Secret})
		}
	}
	want := []row{
		{"LLM_COUNCIL_API_TOKENS", "", config.SourceDefault, true},
		{"LLM_COUNCIL_API_KEY", "[redacted]", config.SourceEnvironment, true},
		{"LLM_COUNCIL_PROVIDERS", "a-b=http://localhost:1/v1,c=http://localhost:2/v1", config.SourceEnvironment, false},
		{"LLM_COUNCIL_API_KEY_A_B", "[redacted]", config.SourceEnvironment, true},
		{"LLM_COUNCIL_API_KEY_C", "", config.SourceDefault, true},
		{"LLM_COUNCIL_TIMEOUT", "60s", config.SourceEnvironment, false},
		{"LLM_COUNCIL_HASH_SECRET", "[redacted]", config.SourceFile, true},
		{"LLM_COUNCIL_EVENT_TOKEN", "", config.SourceDefault, true},
		{"LLM_COUNCIL_WEBHOOK_SECRET", "", config.SourceDefault, true},
		{"LLM_COUNCIL_SESSIONS_KEY", "", config.SourceDefault, true},
		{"LLM_COUNCIL_NATS_CREDS", "", config.SourceDefault, true},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// FuzzLoad gives any text to any setting: Load must return, name the setting in
// whatever it reports, and never show a secret.
func FuzzLoad(f *testing.F) {
	settings := (config.Config{}).Settings()
	for i, s := range settings {
		f.Add(uint(i), s.Default)
		f.Add(uint(i), "1, =x:\x7f%")
		f.Add(uint(i), "-1")
	}
	f.Fuzz(func(t *testing.T, i uint, value string) {
		if strings.Contains(value, "\x00") {
			return // no variable can hold it
		}
		s := settings[i%uint(len(settings))]
		c, err := load(t, vars{"HASH_SECRET": "for consent level 4", strings.TrimPrefix(s.Name, "LLM_COUNCIL_"): value})
		if err != nil {
			for line := range strings.Lines(err.Error()) {
				if !strings.HasPrefix(line, s.Name+": ") {
					t.Errorf("%s=%q: unexpected line %q", s.Name, value, line)
				}
			}
			// A short text may be part of the wording.
			if s.Secret && len(value) > 8 && strings.Contains(err.Error(), value) {
				t.Errorf("%s=%q: the error shows the secret: %v", s.Name, value, err)
			}
			return
		}
		for _, row := range c.Settings() {
			if row.Secret && row.Value != "" && row.Value != "[redacted]" {
				t.Errorf("%s=%q: shown as %q", s.Name, value, row.Value)
			}
		}
	})
}

func TestKeepsRecords(t *testing.T) {
	for _, tt := range []struct {
		persistence bool
		consent     int
		want        bool
	}{{true, 1, true}, {true, 0, false}, {false, 1, false}} {
		c := config.Config{Records: config.Records{BiasPersistence: tt.persistence, BiasConsent: tt.consent}}
		if got := c.KeepsRecords(); got != tt.want {
			t.Errorf("BIAS_PERSISTENCE %v, BIAS_CONSENT %d: %v", tt.persistence, tt.consent, got)
		}
	}
}

// Every setting that a message can name is one that can be set.
func TestSettingNames(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../council/setting.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	names, tested := config.SettingNames(), 0
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok {
			field, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil || !strings.HasPrefix(names[council.Setting(field)], "LLM_COUNCIL_") {
				t.Errorf("%s has the variable %q, %v", field, names[council.Setting(field)], err)
			}
			tested++
		}
		return true
	})
	if tested == 0 {
		t.Error("council names no setting")
	}
}
