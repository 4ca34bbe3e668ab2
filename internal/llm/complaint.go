package llm

import (
	"bytes"
	"encoding/json"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/councild/councild/internal/council"
)

// complaint is what the body of an error says. Providers use many forms. OpenAI sends {"error": {"message", "type",
// "code", "param"}}. Other providers send a text, a list of such objects, or these members without "error" around them.
// Gateways wrap the error of a provider, sometimes as JSON inside a text.
type complaint struct {
	message string   // the provider's reason, or ""
	words   string   // the beginning of message, which is searched
	status  int      // the HTTP status that the error names, or 0
	names   []string // the codes, types and reasons of the error, in the form that plain returns
	quotas  string   // names of the quotas that are used up
	param   string   // names of the parameters at fault
	flagged bool     // the error lists why the content was refused
	wait    *float64 // seconds until the request may be sent again, or nil
}

const (
	// complaintDepth limits how many levels of an error are read. No form in use has that many.
	complaintDepth = 8
	// maxWords limits the words of an error that are searched, and the names of its quotas and parameters.
	maxWords = 4 << 10
	// maxNames is more names than any error has. maxListed is more elements than any list in an error has.
	maxNames, maxListed = 100, 100
)

// readComplaint reads the body of an error. If the body is too long or no JSON, the complaint is empty.
func readComplaint(body []byte) complaint {
	var c complaint
	if len(body) > maxErrorBytes {
		return c
	}
	var v any
	if json.Unmarshal(unframed(body), &v) != nil {
		return c
	}
	c.message = wording(v, complaintDepth)
	c.words = c.message[:min(len(c.message), maxWords)]
	c.collect(v, complaintDepth)
	if c.status == 0 {
		c.status = statusInWords(c.words)
	}
	if c.wait == nil {
		c.wait = waitInWords(c.words)
	}
	return c
}

// unframed returns the JSON of an error that comes as an event of a stream. It returns other bodies as they are.
func unframed(body []byte) []byte {
	body = bytes.TrimSpace(bytes.TrimPrefix(body, []byte(byteOrderMark)))
	for line := range bytes.Lines(body) {
		if data, ok := dataOf(line); ok && len(data) > 0 {
			return data
		}
		if bytes.HasPrefix(line, []byte("{")) || bytes.HasPrefix(line, []byte("[")) {
			break
		}
	}
	return body
}

// If v is a text that holds a JSON object or a JSON list, unwrap returns that object or list. Otherwise it returns v.
func unwrap(v any) any {
	text, ok := v.(string)
	if !ok {
		return v
	}
	if trimmed := strings.TrimSpace(text); strings.HasPrefix(trimmed, "{") || strings.HasPrefix(trimmed, "[") {
		var inner any
		if json.Unmarshal([]byte(trimmed), &inner) == nil {
			return inner
		}
	}
	return v
}

// fields returns the members of an object, with their names in lower case without underscores and hyphens.
func fields(object map[string]any) map[string]any {
	out := make(map[string]any, len(object))
	for name, value := range object {
		out[strings.ReplaceAll(strings.ReplaceAll(strings.ToLower(name), "_", ""), "-", "")] = value
	}
	return out
}

// wording returns the reason that an error gives. It joins the texts of the error, and leaves out repetitions.
func wording(v any, depth int) string {
	if depth == 0 {
		return ""
	}
	switch v := v.(type) {
	case string:
		if inner := unwrap(v); inner != any(v) {
			if text := wording(inner, depth-1); text != "" {
				return text
			}
		}
		return v
	case []any:
		var texts []string
		for _, element := range v[:min(len(v), maxListed)] {
			if text := wording(element, depth-1); text != "" {
				texts = append(texts, text)
			}
		}
		return strings.Join(texts, ", ")
	case map[string]any:
		return wordingOf(fields(v), depth)
	default:
		return ""
	}
}

func wordingOf(object map[string]any, depth int) string {
	text := ""
	add := func(more string) {
		switch {
		case more == "" || strings.Contains(text, more):
		case strings.Contains(more, text): // This is also true if text is empty.
			text = more
		default:
			text += ": " + more
		}
	}
	for _, name := range []string{
		"error", "message", "msg", "detail", "errordescription", "errormessage", "errormsg", "errors", "statusmsg",
		"baseresp", "metadata", "raw", "reasons", "innererror",
	} {
		if name == "baseresp" && !isFailing(object[name]) {
			continue
		}
		add(wording(object[name], depth-1))
	}
	if reason, ok := object["reason"].(string); ok && (text == "" || strings.Contains(reason, " ")) {
		add(reason)
	}
	for _, name := range []string{"title", "description", "data", "code", "type", "status"} {
		if other := wording(object[name], depth-1); text == "" && plain(other) != "error" {
			text = other
		}
	}
	return text
}

// isFailing reports whether v, MiniMax's base_resp, reports an error. If there is no error, its status_code is 0.
func isFailing(v any) bool {
	object, ok := v.(map[string]any)
	return ok && object["status_code"] != 0.0
}

// collect reads the data of an error into c. It reads outer objects before inner ones, because only the first status
// that it finds counts.
func (c *complaint) collect(v any, depth int) {
	v = unwrap(v)
	if list, ok := v.([]any); ok && depth > 0 {
		for _, element := range list[:min(len(list), maxListed)] {
			c.collect(element, depth-1)
		}
		return
	}
	members, ok := v.(map[string]any)
	if !ok || depth == 0 {
		return
	}
	object := fields(members)
	c.note(object)
	for _, name := range []string{
		"error", "message", "detail", "details", "violations", "errors", "metadata", "raw", "data", "innererror",
	} {
		c.collect(object[name], depth-1)
	}
}

// note records what an object says. It does not look into the objects inside this object.
func (c *complaint) note(object map[string]any) {
	for _, name := range []string{
		"code", "statuscode", "httpcode", "httpstatus", "status", "errorcode", "type", "errortype", "reason", "object",
		"error",
	} {
		c.name(object[name])
	}
	for _, name := range []string{"quotaid", "quotametric"} {
		if text, ok := object[name].(string); ok && len(c.quotas) < maxWords {
			c.quotas += " " + text
		}
	}
	for _, name := range []string{"param", "parameter", "loc", "field"} {
		if len(c.param) < maxWords {
			c.param += " " + flat(object[name])
		}
	}
	for _, name := range []string{"retrydelay", "retryafter", "retryafterseconds"} {
		if c.wait == nil {
			c.wait = seconds(object[name])
		}
	}
	if reasons, ok := object["reasons"].([]any); ok && len(reasons) > 0 || object["flaggedinput"] != nil {
		c.flagged = true
	}
	if base, ok := object["baseresp"].(map[string]any); ok && isFailing(base) {
		c.name(ofMiniMax(base["status_code"]))
	}
}

// name records a code, type or status.
func (c *complaint) name(v any) {
	switch v := v.(type) {
	case float64:
		if c.status == 0 && v == math.Trunc(v) && v >= 400 && v < 600 {
			c.status = int(v)
		}
	case string:
		if n, err := strconv.ParseFloat(v, 64); err == nil {
			c.name(n)
			return
		}
		name := plain(v)
		const longest = 100
		if name == "" || len(name) > longest || len(c.names) == maxNames { // A sentence is no name.
			return
		}
		c.names = append(c.names, name)
		if c.status == 0 {
			c.status = named(name)
		}
	}
}

// flat returns a text as it is. It joins the texts in a list with blanks. For any other value it returns "".
func flat(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case []any:
		var texts []string
		for _, element := range v {
			if text, ok := element.(string); ok {
				texts = append(texts, text)
			}
		}
		return strings.Join(texts, " ")
	default:
		return ""
	}
}

// plain returns the letters and digits of a name in lower case. For example, it returns the same for rate_limit_error,
// RateLimitError and "Rate limit error".
func plain(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r > '\u007f':
			return r
		default:
			return -1
		}
	}, name)
}

// named returns the HTTP status for a name, or 0 if the name is not known.
func named(name string) int {
	for _, end := range []string{"error", "exception"} {
		name = strings.TrimSuffix(name, end)
	}
	switch name {
	case "ratelimit", "ratelimited", "ratelimitexceeded", "ratelimitreached", "toomanyrequests", "resourceexhausted",
		"throttling", "throttled", "limitrequests", "requestlimitexceeded", "tokenlimitexceeded", "concurrencylimitexceeded":
		return http.StatusTooManyRequests
	case "overloaded", "serverisoverloaded", "serveroverloaded", "engineoverloaded", "modeloverloaded",
		"serviceunavailable", "unavailable", "servertemporarilyunavailable", "modelnotready", "slowdown",
		"insufficientsystemresource", "networkerror":
		return http.StatusServiceUnavailable
	case "server", "internalserver", "internal", "api", "upstream", "serverinternal":
		return http.StatusInternalServerError
	case "badgateway":
		return http.StatusBadGateway
	case "timeout", "gatewaytimeout", "deadlineexceeded", "servertimeout":
		return http.StatusGatewayTimeout
	case "requesttimeout":
		return http.StatusRequestTimeout
	case "authentication", "unauthorized", "unauthenticated", "invalidapikey", "apikeyinvalid", "invalidauthentication",
		"incorrectapikey":
		return http.StatusUnauthorized
	case "insufficientquota", "insufficientbalance", "insufficientcredits", "paymentrequired", "billing":
		return http.StatusPaymentRequired
	case "permission", "permissiondenied", "forbidden", "requestforbidden", "accessdenied":
		return http.StatusForbidden
	case "notfound", "modelnotfound":
		return http.StatusNotFound
	case "invalidrequest", "invalidargument", "badrequest", "failedprecondition":
		return http.StatusBadRequest
	default:
		return 0
	}
}

// ofMiniMax returns the name for a status_code in MiniMax's base_resp
// (platform.minimax.io/docs/api-reference/errorcode).
func ofMiniMax(code any) string {
	switch code {
	case 1001.0:
		return "timeout"
	case 1002.0, 1039.0, 1041.0:
		return "rate_limit"
	case 1004.0, 2049.0:
		return "invalid_api_key"
	case 1008.0, 2056.0:
		return "insufficient_balance"
	case 1026.0, 1027.0:
		return "content_filter"
	case 1000.0, 1013.0, 1024.0, 1033.0:
		return "internal"
	case 2013.0:
		return "invalid_request"
	default:
		return ""
	}
}

var leadingStatus = regexp.MustCompile(`(?i)^\W*(?:(?:http|api|upstream|status|error|code|request failed with)\W*)*([45]\d\d)\b`)

// statusInWords returns the HTTP status at the beginning of a text, or the one that the whole text names, as in "429
// Too Many Requests", "Error code: 503" and "Rate limit exceeded". It returns 0 if there is none.
func statusInWords(words string) int {
	if match := leadingStatus.FindStringSubmatch(words); match != nil {
		status, _ := strconv.Atoi(match[1]) // It has three digits.
		return status
	}
	const longest = 40
	if len(words) > longest {
		return 0
	}
	name := plain(words)
	for status := http.StatusBadRequest; status < 600; status++ {
		if text := http.StatusText(status); text != "" && plain(text) == name {
			return status
		}
	}
	return named(name)
}

var (
	waitPart = regexp.MustCompile(`(?i)(?:try again|retry|retry after|wait)(?: again)?(?: in| after| for)?:? ` +
		`(\d[\d.hms]*)( ?(?:s|sec|seconds?|m|min|minutes?|h|hours?)\b)?`)
	number = regexp.MustCompile(`^[\d.]+$`)
)

// waitInWords returns how many seconds a text asks the caller to wait, as in "in 20s", "in 7m12.5s" and "after 30
// seconds". It returns nil if the text names no time.
func waitInWords(words string) *float64 {
	match := waitPart.FindStringSubmatch(words)
	if match == nil {
		return nil
	}
	amount := strings.TrimRight(match[1], ".")
	unit := strings.ToLower(strings.TrimSpace(match[2]))
	switch {
	case !number.MatchString(amount):
		return seconds(strings.ToLower(amount))
	case unit != "":
		return seconds(amount + unit[:1])
	default:
		return nil
	}
}

// seconds reads a duration: a number of seconds, or a text such as "45.5s".
func seconds(v any) *float64 {
	if text, ok := v.(string); ok {
		if d, err := time.ParseDuration(text); err == nil {
			v = d.Seconds()
		} else if n, err := strconv.ParseFloat(text, 64); err == nil {
			v = n
		}
	}
	if n, ok := v.(float64); ok && n >= 0 && !math.IsInf(n, 1) {
		return &n
	}
	return nil
}

// has reports whether one of the names contains one of the words.
func (c *complaint) has(words ...string) bool {
	return slices.ContainsFunc(c.names, func(name string) bool {
		return slices.ContainsFunc(words, func(word string) bool { return strings.Contains(name, word) })
	})
}

// code returns the failure code for an error. The argument status is the HTTP status, or 0 if the provider gave none.
// The names and words of the error take precedence over the status, because providers use several statuses for the same
// problem.
func (c *complaint) code(status int) council.FailureCode {
	switch {
	case c.outOfQuota(status):
		return council.FailOutOfQuota
	case c.filtered(status):
		return council.FailContentFilter
	case status == http.StatusUnauthorized, status < 500 && c.has("invalidapikey", "apikeyinvalid", "incorrectapikey"),
		status == http.StatusForbidden && c.blamesKey():
		return council.FailUnauthorized
	case status == http.StatusTooManyRequests:
		return council.FailRateLimited
	case status == http.StatusNotFound:
		return council.FailUnknownModel
	case status >= 500:
		return council.FailUnavailable
	case status < 200: // A status below 200 ends no request.
		return council.FailBadResponse
	default:
		return council.FailRejected
	}
}

var (
	// perDay matches names and words for limits that reset on the next day or later.
	perDay = regexp.MustCompile(`(?i)per[ _-]?(day|week|month)|\((rpd|tpd)\)|` +
		`\b(daily|weekly|monthly) (\w+ )?(limit|quota|cap|allowance|usage)|` +
		`(limit|quota) (for|of) (today|the day|this (week|month))`)
	// perMinute matches names and words for limits that reset while a session waits.
	perMinute = regexp.MustCompile(`(?i)per[ _-]?(sec|min|hour)|\((rpm|tpm|rps)\)`)
	// noMoney matches words that say that the account lacks money, or has reached its spending limit.
	noMoney = regexp.MustCompile(`(?i)insufficient (account )?(balance|credits?|funds|quota)|` +
		`not enough (balance|credits?|funds|quota)|` +
		`balance is (too low|insufficient)|` +
		`(no|more|out of|add|exhausted (all )?your|depleted your|purchase) (\w+ )?credits?\b|` +
		`credits? (balance )?(is |are |has been |have been )?(exhausted|depleted|used up|too low)|` +
		`(hard|spend|spending|budget|key|credit|billing) limit (has been |was |is )?(exceeded|reached)|` +
		`reached your (\w+ )?(spend|spending|billing|credit) limit|` +
		`budget has been exceeded|` +
		`exceeded (your|the) (\w+ )?(budget|spend|spending|credit|billing)\b|` +
		`payment (is )?required|` +
		`(billing|account) (is )?not active|` +
		`overdue (payment|bill|balance)|account (is )?(overdue|in arrears)|` +
		`余额不足|欠费|额度不足|配额不足|无可用资源包`)
	// usedUp matches words that say that a quota is used up, but not which one.
	usedUp = regexp.MustCompile(`(?i)exceeded your current quota|` +
		`quota (has been |is )?(exhausted|used up)|` +
		`usage limit (has been |is )?(exceeded|reached)|` +
		`reached your (\w+ )?usage limit`)
	// noneAtAll matches what Gemini says about a model that an account may not use.
	noneAtAll = regexp.MustCompile(`(?i)\blimit: 0\b`)
)

// outOfQuota reports whether a request was refused because a quota or the money of the account is used up. A retry in
// the same session would then fail too. If the error names quotas, their names decide whether a limit is per day or per
// minute, because Gemini uses the same status and the same words for both.
func (c *complaint) outOfQuota(status int) bool {
	text := c.words
	if c.quotas != "" {
		text = c.quotas
	}
	switch {
	case status == http.StatusPaymentRequired:
		return true
	case c.has("insufficientquota", "insufficientbalance", "insufficientcredit", "insufficientuserquota", "insufficientfunds", "billing",
		"paymentrequired", "exceededcurrentquota", "budgetexceeded", "creditsexhausted", "arrearage", "accountoverdue", "quotaexhausted",
		"usagelimitreached", "spendlimit"):
		return true
	case status >= 500:
		return noMoney.MatchString(c.words)
	case status != http.StatusTooManyRequests:
		return status >= 400 && noMoney.MatchString(c.words)
	case perDay.MatchString(text), noneAtAll.MatchString(c.words):
		return true
	case perMinute.MatchString(text):
		return false
	default:
		return noMoney.MatchString(c.words) || c.wait == nil && usedUp.MatchString(c.words)
	}
}

// refusedContent matches words that say that a request was refused for its content.
var refusedContent = regexp.MustCompile(`(?i)(input|prompt|request|content|message|text|query|output|response) ` +
	`(was|is|were|has been|have been|may be|being|got) (\w+ )?flagged|` +
	`flagged (as|for|by)\b|` +
	`requires moderation|moderation (policy|policies|guidelines|error|system|check|filter)|` +
	`content[ _-]?(management|moderation|safety|usage) polic|` +
	`content polic(y|ies)|content[ _-]?filter|usage polic(y|ies)|` +
	`considered (high risk|unsafe)|content exists risk|safety system|inappropriate content|` +
	`敏感内容|内容安全`)

// filtered reports whether a request was refused for its content.
func (c *complaint) filtered(status int) bool {
	switch {
	case c.has("contentfilter", "responsibleai", "contentpolicy", "datainspection", "sensitivecontent", "prohibitedcontent",
		"contentmoderation", "moderationblocked", "moderationerror", "contentsafety"):
		return true
	case status == http.StatusUnauthorized, status == http.StatusNotFound, status == http.StatusTooManyRequests:
		return false
	default:
		return status >= 400 && status < 500 && (c.flagged || refusedContent.MatchString(c.words))
	}
}

var (
	aboutKey = regexp.MustCompile(`(?i)api[ _-]?key|\b(auth|access|bearer) ?token\b|invalid token|token (is )?(invalid|expired)|` +
		`credential|authenticat|authorization header|` +
		`\bkey (is )?(invalid|expired|disabled|revoked)`)
	aboutOther = regexp.MustCompile(`(?i)\bmodels?\b|region|country|territory|location|\bpolic(y|ies)\b`)
)

// blamesKey reports whether an error says that the key is wrong. An error with HTTP 403 may instead be about the models
// or the countries for which the key is not allowed.
func (c *complaint) blamesKey() bool {
	return c.has("invalidauth", "authentication", "unauthenticated", "apikey") ||
		aboutKey.MatchString(c.words) && !aboutOther.MatchString(c.words)
}
