package llm

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/growth"
	"github.com/councild/councild/internal/testkit/race"
	"github.com/google/go-cmp/cmp"
)

// errorCases are errors in the forms in which providers send them. Most forms are those of reports that users of the providers
// have published; the names and words in them are ours.
var errorCases = []struct {
	name   string
	status int
	body   string
	code   council.FailureCode
	tries  int     // requests in all, of 3
	words  string  // in the message
	wait   float64 // seconds that the provider asks for; 0: none
}{
	// Errors inside HTTP 200.
	{
		"200, code 429", 200,
		`{"error":{"code":429,"message":"too fast"}}`,
		"rate_limited", 3, "429 Too Many Requests behind HTTP 200: too fast", 0,
	},
	{"200, code 503", 200, `{"error":{"code":503,"message":"no room"}}`, "unavailable", 3, "no room", 0},
	{
		"200, code 502 with a provider's name", 200,
		`{"error":{"code":502,"message":"Provider returned error","metadata":{"provider_name":"x"}},"user_id":"u"}`,
		"unavailable", 3, "Provider returned error", 0,
	},
	{"200, code in quotes", 200, `{"error":{"code":"429","message":"x"}}`, "rate_limited", 3, "x", 0},
	{"200, a status beside", 200, `{"error":"busy","status":503}`, "unavailable", 3, "busy", 0},
	{"200, status_code", 200, `{"error":{"status_code":500,"message":"x"}}`, "unavailable", 3, "x", 0},
	{"200, http_code", 200, `{"error":{"http_code":"529","message":"x"}}`, "unavailable", 3, "529 behind HTTP 200: x", 0},
	{"200, a code in words", 200, `{"error":{"code":"rate_limit_exceeded","message":"x"}}`, "rate_limited", 3, "x", 0},
	{"200, a type", 200, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, "unavailable", 3, "Overloaded", 0},
	{"200, another type", 200, `{"error":{"type":"rate_limit_error","message":"x"}}`, "rate_limited", 3, "x", 0},
	{"200, a class", 200, `{"error":{"type":"RateLimitError","message":"x"}}`, "rate_limited", 3, "x", 0},
	{
		"200, server_is_overloaded", 200,
		`{"error":{"type":"service_unavailable_error","code":"server_is_overloaded","message":"x"}}`,
		"unavailable", 3, "x", 0,
	},
	{"200, server_error", 200, `{"error":{"type":"server_error","message":"x"}}`, "unavailable", 3, "x", 0},
	{
		"200, Google's status", 200,
		`[{"error":{"code":503,"message":"overloaded","status":"UNAVAILABLE"}}]`,
		"unavailable", 3, "overloaded", 0,
	},
	{"200, Google's status alone", 200, `{"error":{"message":"m","status":"RESOURCE_EXHAUSTED"}}`, "rate_limited", 3, "m", 0},
	{
		"200, vLLM", 200,
		`{"object":"error","message":"the engine is dead","type":"InternalServerError","param":null,"code":503}`,
		"unavailable", 3, "the engine is dead", 0,
	},
	{"200, detail", 200, `{"detail":"Rate limit exceeded"}`, "rate_limited", 3, "Rate limit exceeded", 0},
	{"200, detail with a status", 200, `{"detail":"503: no worker"}`, "unavailable", 3, "no worker", 0},
	{"200, a status in words", 200, `{"error":{"message":"Error code: 429 - slow down"}}`, "rate_limited", 3, "slow down", 0},
	{"200, the name of a status", 200, `{"error":"Service Unavailable"}`, "unavailable", 3, "Service Unavailable", 0},
	{
		"200, a message of JSON", 200,
		`{"error":{"message":"{\"error\":{\"code\":429,\"message\":\"inner\"}}"}}`,
		"rate_limited", 3, "inner", 0,
	},
	{
		"200, a choice", 200,
		`{"choices":[{"index":0,"message":{"role":"assistant","content":"half"},"finish_reason":"error","error":{"code":502,` +
			`"message":"upstream"}}]}`,
		"unavailable", 3, "upstream", 0,
	},
	{
		"200, a choice that stops", 200,
		`{"choices":[{"index":0,"message":{"content":"half"},"finish_reason":"stop","error":{"code":429,"message":"m"}}]}`,
		"rate_limited", 3, "m", 0,
	},
	{
		"200, beside choices", 200,
		`{"choices":[{"index":0,"message":{"content":"half"},"finish_reason":"error"}],"error":{"code":504,"message":"m"}}`,
		"unavailable", 3, "m", 0,
	},
	{"200, code 408", 200, `{"error":{"code":408,"message":"m"}}`, "rejected", 3, "m", 0},
	{"200, code 401", 200, `{"error":{"code":401,"message":"m"}}`, "unauthorized", 1, "m", 0},
	{"200, code 404", 200, `{"error":{"code":404,"message":"No endpoints found"}}`, "unknown_model", 1, "No endpoints found", 0},
	{"200, code 400", 200, `{"error":{"code":400,"message":"m"}}`, "rejected", 1, "m", 0},
	{"200, code 402", 200, `{"error":{"code":402,"message":"m"}}`, "out_of_quota", 1, "m", 0},
	{"200, insufficient_quota", 200, `{"error":{"type":"insufficient_quota","message":"m"}}`, "out_of_quota", 1, "m", 0},
	{"200, content_filter", 200, `{"error":{"code":"content_filter","message":"m"}}`, "content_filter", 1, "m", 0},
	{
		"200, MiniMax, login", 200,
		`{"choices":null,"base_resp":{"status_code":1004,"status_msg":"login fail: the key is missing"}}`,
		"unauthorized", 1, "login fail", 0,
	},
	{
		"200, MiniMax, limit", 200,
		`{"choices":null,"base_resp":{"status_code":1002,"status_msg":"rate limit"}}`,
		"rate_limited", 3, "rate limit", 0,
	},
	{
		"200, MiniMax, money", 200,
		`{"choices":null,"base_resp":{"status_code":1008,"status_msg":"insufficient balance"}}`,
		"out_of_quota", 1, "insufficient balance", 0,
	},
	{
		"200, MiniMax, content", 200,
		`{"choices":null,"base_resp":{"status_code":1027,"status_msg":"output new_sensitive"}}`,
		"content_filter", 1, "new_sensitive", 0,
	},
	{
		"200, MiniMax, inside", 200,
		`{"choices":null,"base_resp":{"status_code":1013,"status_msg":"internal"}}`,
		"unavailable", 3, "internal", 0,
	},
	{
		"200, MiniMax, words alone", 200,
		`{"choices":null,"base_resp":{"status_code":9999,"status_msg":"login fail"}}`,
		"bad_response", 1, "login fail", 0,
	},
	{
		"200, MiniMax, no error", 200,
		`{"choices":null,"base_resp":{"status_code":0,"status_msg":"fine"}}`,
		"bad_response", 1, "holds no answer", 0,
	},
	{"200, no status", 200, `{"error":{"message":"boom","code":null}}`, "bad_response", 1, "boom", 0},
	{"200, a text", 200, `{"error":"boom"}`, "bad_response", 1, "boom", 0},
	{"200, a code of its own", 200, `{"error":{"code":1305,"message":"boom"}}`, "bad_response", 1, "boom", 0},
	{"200, code 200", 200, `{"code":200,"message":"boom"}`, "bad_response", 1, "boom", 0},
	{"200, a small code", 200, `{"error":{"code":4.29,"message":"boom"}}`, "bad_response", 1, "boom", 0},
	{
		"200, broke off for want of resources", 200,
		`{"choices":[{"message":{"content":"half"},"finish_reason":"insufficient_system_resource"}]}`,
		"unavailable", 3, "broke the reply off", 0,
	},
	{
		"200, broke off in the network", 200,
		`{"choices":[{"message":{"content":"half"},"finish_reason":"network_error"}]}`,
		"unavailable", 3, "broke the reply off", 0,
	},
	{
		"200, broke off", 200,
		`{"choices":[{"message":{"content":"half"},"finish_reason":"error"}]}`,
		"bad_response", 1, "broke the reply off", 0,
	},
	{"200, a wait", 200, `{"error":{"code":429,"message":"Please try again in 20s."}}`, "rate_limited", 3, "", 20},

	// Quotas and money.
	{
		"OpenAI's quota", 429,
		`{"error":{"message":"m","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`,
		"out_of_quota", 1, "m", 0,
	},
	{"its type alone", 429, `{"error":{"message":"m","type":"insufficient_quota","code":null}}`, "out_of_quota", 1, "m", 0},
	{"its code alone", 429, `{"error":{"message":"m","code":"insufficient_quota"}}`, "out_of_quota", 1, "m", 0},
	{"a bill", 429, `{"error":{"message":"m","code":"billing_hard_limit_reached"}}`, "out_of_quota", 1, "m", 0},
	{
		"402", 402,
		`{"error":{"message":"This request requires more credits, or fewer max_tokens.","code":402}}`,
		"out_of_quota", 1, "more credits", 0,
	},
	{"402 without words", 402, ``, "out_of_quota", 1, "402 Payment Required", 0},
	{"credits in 429", 429, `{"error":{"message":"you need more credits"}}`, "out_of_quota", 1, "more credits", 0},
	{
		"Anthropic's 400", 400,
		`{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low."}}`,
		"out_of_quota", 1, "too low", 0,
	},
	{
		"a gateway's 401", 401,
		`{"error":{"message":"Insufficient balance. Look at your billing."}}`,
		"out_of_quota", 1, "Insufficient balance", 0,
	},
	{"a limit of the key", 403, `{"error":{"message":"Key limit exceeded (total limit)","code":403}}`, "out_of_quota", 1, "Key limit", 0},
	{
		"MiniMax's 429", 429,
		`{"error":{"http_code":"429","message":"insufficient balance (1008)","type":"insufficient_balance_error"}}`,
		"out_of_quota", 1, "insufficient balance", 0,
	},
	{
		"MiniMax's 500", 500,
		`{"type":"error","error":{"type":"api_error","message":"insufficient balance (1008)"}}`,
		"out_of_quota", 1, "insufficient balance", 0,
	},
	{
		"a gateway's quota", 403,
		`{"error":{"message":"m","type":"new_api_error","code":"insufficient_user_quota"}}`,
		"out_of_quota", 1, "m", 0,
	},
	{
		"a gateway's budget", 400,
		`{"error":{"message":"Budget has been exceeded! Current cost: 2","type":"budget_exceeded","code":"400"}}`,
		"out_of_quota", 1, "Budget", 0,
	},
	{"Moonshot's quota", 429, `{"error":{"message":"m","type":"exceeded_current_quota_error"}}`, "out_of_quota", 1, "m", 0},
	{"an overdue bill", 400, `{"error":{"code":"Arrearage","message":"Access denied"}}`, "out_of_quota", 1, "Access denied", 0},
	{"in Chinese", 429, `{"error":{"code":"1113","message":"余额不足或无可用资源包,请充值。"}}`, "out_of_quota", 1, "余额不足", 0},
	{
		"Google's day", 429, google("You exceeded your current quota.", "12s", "GenerateRequestsPerDayPerProjectPerModel-FreeTier"),
		"out_of_quota", 1, "exceeded your current quota", 12,
	},
	{
		"Google's minute and day", 429, google("You exceeded your current quota.", "12s",
			"GenerateRequestsPerMinutePerProjectPerModel-FreeTier", "GenerateRequestsPerDayPerProjectPerModel-FreeTier"), "out_of_quota", 1, "exceeded your current quota", 12,
	},
	{
		"Google's minute", 429, google("You exceeded your current quota, please check your plan and billing details.", "12.5s",
			"GenerateContentInputTokensPerModelPerMinute-FreeTier"), "rate_limited", 3, "exceeded your current quota", 12.5,
	},
	{
		"Google's day in a list", 429, "[" + google("You exceeded your current quota.", "", "GenerateRequestsPerDayPerProjectPerModel") + "]",
		"out_of_quota", 1, "", 0,
	},
	{
		"Google's day by its metric", 429,
		`{"error":{"code":429,"message":"m","details":[{"violations":[{"quotaMetric":"x/generate_requests_per_model_per_day"}]}` +
			`]}}`,
		"out_of_quota", 1, "m", 0,
	},
	{
		"Google's words with a wait", 429,
		`{"error":{"message":"You exceeded your current quota.\nPlease retry in 7.25s.","status":"RESOURCE_EXHAUSTED"}}`,
		"rate_limited", 3, "", 7.25,
	},
	{
		"Google's words without one", 429,
		`{"error":{"message":"You exceeded your current quota, please check your plan.","status":"RESOURCE_EXHAUSTED"}}`,
		"out_of_quota", 1, "", 0,
	},
	{
		"Google's tier without the model", 429,
		`{"error":{"message":"Quota exceeded for metric: x, limit: 0, model: m\nPlease retry in 9s.",` +
			`"status":"RESOURCE_EXHAUSTED"}}`,
		"out_of_quota", 1, "limit: 0", 9,
	},
	{
		"Google's short words", 429,
		`{"error":{"code":429,"message":"Resource has been exhausted (e.g. check quota).","status":"RESOURCE_EXHAUSTED"}}`,
		"rate_limited", 3, "", 0,
	},
	{
		"Vertex, a minute", 429,
		`{"error":{"message":"Quota exceeded for x/generate_content_requests_per_minute_per_project_per_base_model. Please subm` +
			`it a quota increase request."}}`,
		"rate_limited", 3, "", 0,
	},
	{
		"OpenRouter's day", 429,
		`{"error":{"message":"Rate limit exceeded: free-models-per-day. Add 10 credits to unlock more.","code":429}}`,
		"out_of_quota", 1, "per-day", 0,
	},
	{
		"OpenRouter's minute", 429,
		`{"error":{"message":"Rate limit exceeded: free-models-per-min. Add 10 credits to unlock more.","code":429}}`,
		"rate_limited", 3, "per-min", 0,
	},
	{
		"OpenAI's day", 429,
		`{"error":{"message":"Rate limit reached for m on requests per day (RPD): Limit 200,` +
			` Used 200. Please try again in 7m12s.","code":"rate_limit_exceeded"}}`,
		"out_of_quota", 1, "(RPD)", 432,
	},
	{
		"OpenAI's minute", 429,
		`{"error":{"message":"Rate limit reached for m on requests per min. Limit: 3 / min. Please try again in 20s. Add a paym` +
			`ent method to your account at x/billing.","code":"rate_limit_exceeded"}}`,
		"rate_limited", 3, "", 20,
	},
	{
		"Groq's day", 429,
		`{"error":{"message":"Rate limit reached on tokens per day (TPD): Limit 5. Please try again in 2m3.5s.",` +
			`"type":"tokens","code":"rate_limit_exceeded"}}`,
		"out_of_quota", 1, "", 123.5,
	},
	{
		"Groq's minute", 429,
		`{"error":{"message":"Rate limit reached on tokens per minute (TPM): Limit 5. Please try again in 350ms. Upgrade today ` +
			`at x/billing","type":"tokens","code":"rate_limit_exceeded"}}`,
		"rate_limited", 3, "", .35,
	},
	{"a daily limit", 429, `{"error":"daily limit of 100 requests reached"}`, "out_of_quota", 1, "daily", 0},
	{"a limit of the key in 429", 429, `{"error":{"message":"You have reached your spending limit"}}`, "out_of_quota", 1, "", 0},
	{"no more than 429", 429, `{"error":{"message":"slow down"}}`, "rate_limited", 3, "slow down", 0},
	{"429 without a body", 429, ``, "rate_limited", 3, "429 Too Many Requests", 0},
	{"a limit of an hour", 429, `{"error":{"message":"60 requests per hour. Retry after 30 seconds."}}`, "rate_limited", 3, "", 30},

	// The reason in words.
	{
		"OpenRouter, raw words", 429,
		`{"error":{"message":"Provider returned error","code":429,"metadata":{"raw":"m is temporarily rate-limited upstream.",` +
			`"provider_name":"x"}}}`,
		"rate_limited", 3, "Provider returned error: m is temporarily rate-limited upstream.", 0,
	},
	{
		"OpenRouter, raw JSON", 400,
		`{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"{\"error\":{\"message\":\"the prompt is ` +
			`too long\"}}"}}}`,
		"rejected", 1, "Provider returned error: the prompt is too long", 0,
	},
	{
		"OpenRouter, a raw object", 503,
		`{"error":{"message":"Provider returned error","metadata":{"raw":{"error":{"message":"cold start"}}}}}`,
		"unavailable", 3, "Provider returned error: cold start", 0,
	},
	{
		"OpenRouter, raw in raw", 403,
		`{"error":{"message":"Provider returned error","code":403,"metadata":{"raw":{"__kind":"OK",` +
			`"data":"{\"error\":{\"code\":\"unsupported_country_region_territory\",\"message\":\"Country, region,` +
			` or territory not supported\"}}"}}}}`,
		"rejected", 1, "territory not supported", 0,
	},
	{
		"a quota in raw", 429,
		`{"error":{"message":"Provider returned ` +
			`error","code":429,"metadata":{"raw":"{\"error\":{\"type\":\"insufficient_quota\",\"message\":\"m\"}}"}}}`,
		"out_of_quota", 1, "m", 0,
	},
	{"msg", 500, `{"error":{"msg":"why"}}`, "unavailable", 3, ": why", 0},
	{"msg at the top", 500, `{"code":"1302","msg":"why"}`, "unavailable", 3, ": why", 0},
	{"message at the top", 500, `{"message":"why"}`, "unavailable", 3, ": why", 0},
	{"error_description", 401, `{"error":"invalid_request","error_description":"why"}`, "unauthorized", 1, ": invalid_request: why", 0},
	{
		"errors", 400,
		`{"success":false,"errors":[{"code":7000,"message":"why"},{"message":"and why"}],"result":null}`,
		"rejected", 1, ": why, and why", 0,
	},
	{"title", 400, `{"title":"why","status":400}`, "rejected", 1, ": why", 0},
	{"title and detail", 400, `{"type":"about:blank","title":"Bad Request","detail":"why"}`, "rejected", 1, "Request: why", 0},
	{"reason", 400, `{"reason":"why"}`, "rejected", 1, ": why", 0},
	{"a reason beside", 400, `{"error":{"message":"no","reason":"the file is gone"}}`, "rejected", 1, ": no: the file is gone", 0},
	{"innererror", 400, `{"error":{"message":"no","innererror":{"message":"why"}}}`, "rejected", 1, ": no: why", 0},
	{
		"Spring", 400,
		`{"timestamp":1,"status":400,"error":"Bad Request","message":"why","path":"/v1"}`,
		"rejected", 1, ": Bad Request: why", 0,
	},
	{
		"a validation", 422,
		`{"detail":[{"loc":["body","x"],"msg":"field required","type":"missing"}]}`,
		"rejected", 1, ": field required", 0,
	},
	{"a code alone", 400, `{"error":{"code":"strange_model"}}`, "rejected", 1, ": strange_model", 0},
	{
		"said twice", 400,
		`{"message":"why","error":{"message":"why","errors":[{"message":"why"}]}}`,
		"rejected", 1, "400 Bad Request: why", 0,
	},
	{"names in capitals", 400, `{"Message":"why"}`, "rejected", 1, ": why", 0},
	{"an event", 429, "event: error\ndata: {\"error\":{\"message\":\"why\"}}\n\n", "rate_limited", 3, ": why", 0},
	{"a byte order mark", 400, "\ufeff" + `{"error":"why"}`, "rejected", 1, ": why", 0},
	{"deep", 400, strings.Repeat(`{"error":`, 100) + `"why"` + strings.Repeat("}", 100), "rejected", 1, "400 Bad Request", 0},

	// What was refused for its content, and what is not the key.
	{
		"Azure", 400,
		`{"error":{"message":"The response was filtered.","type":null,"param":"prompt","code":"content_filter","status":400,` +
			`"innererror":{"code":"ResponsibleAIPolicyViolation","content_filter_result":{"hate":{"filtered":true}}}}}`,
		"content_filter", 1, "The response was filtered.", 0,
	},
	{
		"Azure, innererror alone", 400,
		`{"error":{"message":"m","code":null,"innererror":{"code":"ResponsibleAIPolicyViolation"}}}`,
		"content_filter", 1, "m", 0,
	},
	{
		"Azure, words alone", 400,
		`{"error":{"message":"ContentPolicyViolationError: the prompt triggered Azure OpenAI's content management policy.",` +
			`"code":"400"}}`,
		"content_filter", 1, "", 0,
	},
	{
		"OpenRouter's moderation", 403,
		`{"error":{"code":403,"message":"x requires moderation","metadata":{"reasons":["violence","hate"],"flagged_input":"…",` +
			`"provider_name":"x"}}}`,
		"content_filter", 1, "moderation: violence, hate", 0,
	},
	{
		"OpenRouter's words", 403,
		`{"error":{"code":403,"message":"Your chosen model requires moderation and your input was flagged for \"hate\"."}}`,
		"content_filter", 1, "was flagged", 0,
	},
	{
		"OpenAI's invalid_prompt", 400,
		`{"error":{"code":"invalid_prompt","message":"Your prompt was flagged as potentially violating our usage policy."}}`,
		"content_filter", 1, "", 0,
	},
	{"content_policy_violation", 400, `{"error":{"code":"content_policy_violation","message":"m"}}`, "content_filter", 1, "m", 0},
	{"DashScope", 400, `{"error":{"code":"data_inspection_failed","message":"m"}}`, "content_filter", 1, "m", 0},
	{
		"DeepSeek", 400,
		`{"error":{"message":"Content Exists Risk","type":"invalid_request_error","code":"invalid_request_error"}}`,
		"content_filter", 1, "", 0,
	},
	{
		"Moonshot", 400,
		`{"error":{"message":"The request was rejected because it was considered high risk","type":"content_filter"}}`,
		"content_filter", 1, "", 0,
	},
	{
		"a schema with such a name", 400,
		`{"error":{"message":"Invalid schema: in ('properties', 'flagged'), 'type' is missing"}}`,
		"rejected", 1, "flagged", 0,
	},
	{
		"a region", 403,
		`{"error":{"code":"unsupported_country_region_territory","message":"Country, region, or territory not supported",` +
			`"type":"request_forbidden"}}`,
		"rejected", 1, "not supported", 0,
	},
	{
		"another region", 403,
		`{"type":"error","error":{"type":"RegionError","message":"This model is not available in your country."}}`,
		"rejected", 1, "in your country", 0,
	},
	{
		"a model that is not allowed", 403,
		`{"error":{"message":"Project p does not have access to model m","code":"model_not_found"}}`,
		"rejected", 1, "access to model", 0,
	},
	{
		"a model that the key may not use", 403,
		`{"error":{"message":"Your API key has no access to the model m"}}`,
		"rejected", 1, "the model m", 0,
	},
	{"a policy", 403, `{"error":{"message":"blocked by your organisation's data policy"}}`, "rejected", 1, "policy", 0},
	{"403 without words", 403, ``, "rejected", 1, "403 Forbidden", 0},
	{"a key", 403, `{"error":{"message":"Incorrect API key provided"}}`, "unauthorized", 1, "key", 0},
	{"a key, as data", 403, `{"error":{"message":"m","code":"invalid_api_key"}}`, "unauthorized", 1, "m", 0},
	{
		"no key", 403,
		`{"error":{"code":403,"message":"Callers must have an identity. Please use API Key.","status":"PERMISSION_DENIED"}}`,
		"unauthorized", 1, "", 0,
	},
	{
		"Google's key", 400,
		`[{"error":{"code":400,"message":"API key not valid.","status":"INVALID_ARGUMENT",` +
			`"details":[{"@type":"x/google.rpc.ErrorInfo","reason":"API_KEY_INVALID"}]}}]`,
		"unauthorized", 1, "not valid", 0,
	},
	{"401", 401, `{"error":{"message":"This model is not available in your region"}}`, "unauthorized", 1, "", 0},
	{"404", 404, `{"error":{"message":"m"}}`, "unknown_model", 1, "m", 0},
}

// google is an error of Google's with the quotas that are used up.
func google(message, wait string, quotas ...string) string {
	type m = map[string]any
	var violations []m
	for _, id := range quotas {
		violations = append(violations, m{"quotaMetric": "x/generate_content_free_tier_requests", "quotaId": id})
	}
	details := []m{{"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": violations}}
	if wait != "" {
		details = append(details, m{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": wait})
	}
	b, _ := json.Marshal(m{"error": m{"code": 429, "message": message, "status": "RESOURCE_EXHAUSTED", "details": details}})
	return string(b)
}

// An error is what its data and its words say, with any status and however deep it is wrapped: it is tried again where
// that may help, and the provider's reason is shown.
func TestProviderErrors(t *testing.T) {
	for _, tt := range errorCases {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s stream=%v", tt.name, stream), func(t *testing.T) {
				race.Bubble(t, func(t *testing.T) {
					play := reply(tt.status, tt.body, "Content-Type", "application/json")
					if stream && tt.status == 200 {
						play = eventStream("data: " + strings.ReplaceAll(tt.body, `"message":{"content"`, `"delta":{"content"`) + "\n\n")
					}
					s := &sequence{plays: []roundTripper{play}}
					call := aCall()
					if stream {
						call.OnDelta = func(string) {}
						call.OnRestart = func(council.FailureCode) {}
					}
					got, err := fakeClient(t, fakeOptions(), s.RoundTrip).Complete(t.Context(), call)
					f := council.AsFailure(err)
					if f == nil {
						t.Fatalf("it is no failure: %+v", got)
					}
					if stream && f.Code == council.FailTruncated { // what says nothing is not the end of a stream
						return
					}
					if f.Code != tt.code || len(s.times) != tt.tries || got.Attempts != tt.tries || !strings.Contains(f.Message, tt.words) {
						t.Errorf("got %s after %d requests, want %s after %d: %s", f.Code, len(s.times), tt.code, tt.tries, tt.words)
						t.Error(f.Message)
					}
					if f.RetryAfterS != nil != (tt.wait != 0) || f.RetryAfterS != nil && *f.RetryAfterS != tt.wait {
						t.Errorf("the provider asks to wait %v, want %v", f.RetryAfterS, tt.wait)
					}
					if tt.tries > 1 && s.times[1].Seconds() < tt.wait {
						t.Errorf("asked again after %s", s.times[1])
					}
					if f.HTTPStatus != nil && *f.HTTPStatus != tt.status {
						t.Errorf("status %d", *f.HTTPStatus)
					}
				})
			})
		}
	}
}

// The headers of a response have the last word on when to ask again.
func TestRetryAfterInWords(t *testing.T) {
	for words, want := range map[string]float64{
		"Please try again in 20s.": 20, "try again in 1.5s": 1.5, "Please try again in 7m12s.": 432, "try again in 350ms": .35,
		"Retry after 30 seconds": 30, "please wait 2 minutes": 120, "retry in 1h": 3600, "Please retry in 45.578s.": 45.578,
		"try again after 5 sec": 5, "Retry after: 3s": 3,
	} {
		if got := waitInWords(words); got == nil || *got != want {
			t.Errorf("%s: %v, want %v", words, got, want)
		}
	}
	for _, words := range []string{
		"", "try again later", "try again in 5", "wait for 5 apples", "try again in a moment", "in 20s", "try again in ..s",
	} {
		if got := waitInWords(words); got != nil {
			t.Errorf("%s: %v", words, *got)
		}
	}
	x := &exchange{response: response{
		status: 429,
		header: http.Header{"Retry-After": {"3"}},
		body:   []byte(`{"error":{"message":"try again in 20s"}}`),
	}}
	if f := refusedBy(x); *f.RetryAfterS != 3 {
		t.Errorf("%v", *f.RetryAfterS)
	}
}

// What an error behind HTTP 200 cost is what it says; a refusal with nothing before it cost nothing.
func TestErrorBehind200IsBilled(t *testing.T) {
	const used = `"usage":{"prompt_tokens":3,"completion_tokens":2,"cost":0.5}`
	known := council.Usage{InputTokens: new(int64(3)), OutputTokens: new(int64(2)), CostUSD: new(0.5)}
	for name, tt := range map[string]struct {
		play roundTripper
		want council.Usage
	}{
		"429":               {reply(200, `{"error":{"code":429}}`), council.NoUsage()},
		"429, used":         {reply(200, `{"error":{"code":429},`+used+`}`), known},
		"429 after a piece": {reply(200, `{"choices":[{"message":{"content":"a"},"error":{"code":429}}]}`), council.Usage{}},
		"503":               {reply(200, `{"error":{"code":503}}`), council.Usage{}},
		"503, used":         {reply(200, `{"error":{"code":503},`+used+`}`), known},
		"no status":         {reply(200, `{"error":{"message":"m"}}`), council.Usage{}},
		"stream":            {eventStream(`data: {"error":{"code":429}}` + "\n\n"), council.NoUsage()},
		"stream, used":      {eventStream(`data: {"error":{"code":429},` + used + "}\n\n"), known},
		"stream, after a piece": {
			eventStream(`data: {"choices":[{"delta":{"content":""}}]}` + "\n\n" + `data: {"error":{"code":429}}` + "\n\n"), council.Usage{},
		},
	} {
		got, _, f := streamed(t.Context(), fakeClient(t, once(), tt.play))
		if diff := cmp.Diff(tt.want, got.Usage); f == nil || diff != "" {
			t.Errorf("%s: %v\n%s", name, f, diff)
		}
	}
}

// An error in a stream is tried again where nothing of it was passed on, or where that is taken back.
func TestErrorInStream(t *testing.T) {
	const (
		a     = `data: {"choices":[{"index":0,"delta":{"content":"a"}}]}` + "\n\n"
		start = `data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}` + "\n\n"
		busy  = `data: {"error":{"code":429,"message":"m"}}` + "\n\n"
	)
	for name, tt := range map[string]struct {
		body     string
		restarts bool
		code     council.FailureCode // "" for a text in the end
		tries    int
	}{
		"first":                   {busy, false, "", 2},
		"after a comment":         {": hi\n\n" + busy, false, "", 2},
		"after an empty piece":    {start + busy, false, "", 2},
		"after a piece":           {a + busy, false, "rate_limited", 1},
		"after a piece, restarts": {a + busy, true, "", 2},
		"in a choice":             {`data: {"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error","error":{"code":502}}]}` + "\n\n", false, "", 2},
		"after the reason":        {`data: {"choices":[{"delta":{},"finish_reason":"error"}]}` + "\n\n" + busy, false, "", 2},
		"an event's name":         {"event: error\ndata: {\"message\":\"m\",\"code\":\"503\"}\n\n", false, "", 2},
		"a name without a status": {"event: error\ndata: {\"message\":\"m\"}\n\n", false, "bad_response", 1},
		"vLLM":                    {`data: {"object":"error","message":"m","code":503}` + "\n\ndata: [DONE]\n\n", false, "", 2},
		"without a status":        {`data: {"object":"error","message":"m"}` + "\n\ndata: [DONE]\n\n", false, "bad_response", 1},
		"a list":                  {`data: [{"error":{"code":503,"message":"m"}}]` + "\n\n", false, "", 2},
		"MiniMax":                 {`data: {"choices":null,"base_resp":{"status_code":1002,"status_msg":"m"}}` + "\n\n", false, "", 2},
		"no frame":                {`{"error":{"code":503,"message":"m"}}`, false, "", 2},
		"no frame, indented":      {"{\n  \"error\": {\n    \"code\": 503,\n    \"message\": \"m\"\n  }\n}\n", false, "", 2},
	} {
		t.Run(name, func(t *testing.T) {
			race.Bubble(t, func(t *testing.T) {
				s := &sequence{plays: []roundTripper{eventStream(tt.body), eventStream(chunks("b"))}}
				call := aCall()
				var told strings.Builder
				call.OnDelta = func(text string) { told.WriteString(text) }
				if tt.restarts {
					call.OnRestart = func(council.FailureCode) { told.Reset() }
				}
				got, err := fakeClient(t, fakeOptions(), s.RoundTrip).Complete(t.Context(), call)
				var code council.FailureCode
				if f := council.AsFailure(err); f != nil {
					code = f.Code
				}
				if code != tt.code || len(s.times) != tt.tries || code == "" && (got.Text != "b" || told.String() != "b") {
					t.Errorf("%v after %d requests, text %q, told %q", err, len(s.times), got.Text, told.String())
				}
			})
		})
	}
}

// An error behind HTTP 200 counts for the breaker as its status does.
func TestErrorBehind200OpensTheBreaker(t *testing.T) {
	for status, want := range map[int]council.BreakerState{503: council.BreakerOpen, 429: council.BreakerClosed} {
		race.Bubble(t, func(t *testing.T) {
			c := fakeClient(t, once(), reply(200, fmt.Sprintf(`{"error":{"code":%d}}`, status)))
			for range breakerRequests {
				_, _ = c.Complete(t.Context(), aCall())
			}
			if got := c.Breakers()[0].State; got != want {
				t.Errorf("%d: %s, want %s", status, got, want)
			}
		})
	}
}

// A reply is read in the frame in which it comes, whatever its type says, and a part of one is never taken for the whole.
func TestFrames(t *testing.T) {
	const (
		whole = `{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":"te\nxt"},"finish_reason":"stop"}],` +
			`"usage":{"prompt_tokens":3,"completion_tokens":2}}`
		te     = `{"choices":[{"index":0,"delta":{"role":"assistant","content":"te\n"},"finish_reason":null}]}`
		xt     = `{"choices":[{"index":0,"delta":{"content":"xt"},"finish_reason":null}]}`
		end    = `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":2}}`
		noEnd  = `{"choices":[{"index":0,"message":{"content":"te\nxt"}}],"usage":{"prompt_tokens":3,"completion_tokens":2}}`
		noUsed = `{"choices":[],"usage":null}`
	)
	text := strings.ReplaceAll(whole, `te\nxt`, `te\nxt [DONE]`)
	var indented strings.Builder
	var v any
	if err := json.Unmarshal([]byte(whole), &v); err != nil {
		t.Fatal(err)
	}
	e := json.NewEncoder(&indented)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	event := func(data ...string) string { return "data: " + strings.Join(data, "\n\ndata: ") + "\n\n" }
	const truncated, bad = council.FailTruncated, council.FailBadResponse
	for name, tt := range map[string]struct {
		body string
		code council.FailureCode
	}{
		"events":                       {event(te, xt, end, "[DONE]"), ""},
		"events without [DONE]":        {event(te, xt, end), ""},
		"events without a reason":      {event(te, xt, "[DONE]") + event(end), ""},
		"events after a comment":       {": working\n\n" + event(te, xt, end, "[DONE]"), ""},
		"events with names":            {"event: message\nid: 1\nretry: 3\n" + event(te, xt, end, "[DONE]"), ""},
		"events without blanks":        {strings.ReplaceAll(event(te, xt, end, "[DONE]"), "data: ", "data:"), ""},
		"events without blank lines":   {strings.ReplaceAll(event(te, xt, end, "[DONE]"), "\n\n", "\n"), ""},
		"events with CRLF":             {strings.ReplaceAll(event(te, xt, end, "[DONE]"), "\n", "\r\n"), ""},
		"events after blank lines":     {"\n\r\n" + event(te, xt, end, "[DONE]"), ""},
		"events after a mark":          {"\ufeff" + event(te, xt, end, "[DONE]"), ""},
		"events in events":             {strings.ReplaceAll(event(te, xt, end, "[DONE]"), "data: ", "data: data: "), ""},
		"a whole reply as an event":    {event(whole, "[DONE]"), ""},
		"the same without [DONE]":      {event(whole), ""},
		"the same without a reason":    {event(noEnd), ""},
		"the whole after its pieces":   {event(te, xt, whole, "[DONE]"), ""},
		"a whole reply, then [DONE]":   {whole + "\n\ndata: [DONE]\n\n", ""},
		"on one line":                  {whole + "data: [DONE]", ""},
		"without a name":               {whole + "\n[DONE]", ""},
		"indented":                     {indented.String(), ""},
		"indented, then [DONE]":        {indented.String() + "\ndata: [DONE]\n", ""},
		"after a mark":                 {"\ufeff" + whole, ""},
		"after a mark, indented":       {"\ufeff\n" + indented.String(), ""},
		"a line each":                  {te + "\n" + xt + "\n" + end + "\n", ""},
		"a line each, then [DONE]":     {te + "\n\n" + xt + "\n\n" + end + "\n\n[DONE]", ""},
		"a line each, a null of usage": {te + "\n" + xt + "\n" + noUsed + "\n" + end, ""},
		"text that ends with [DONE]":   {text, ""},
		"a piece alone":                {te, truncated},
		"pieces without an end":        {event(te, xt), truncated},
		"pieces cut off":               {event(te, xt)[:120], truncated},
		"lines without an end":         {te + "\n" + xt + "\n", truncated},
		"a line cut off":               {te + "\n" + xt[:30], truncated},
		"[DONE] cut off":               {event(te, xt) + "data: [DO", truncated},
		"a whole reply cut off":        {whole[:60], bad},
		"a whole event cut off":        {event(whole)[:60], truncated},
		"half a reply, then [DONE]":    {whole[:60] + "\n\ndata: [DONE]\n\n", bad},
		"nothing but [DONE]":           {"data: [DONE]\n\n", council.FailEmpty},
		"comments alone":               {": hi\n\n: hi\n\n", truncated},
		"a page":                       {"<html>data: x</html>", bad},
		"words":                        {"data is not available", bad},
		"garbage behind":               {whole + "<!-- cached -->", bad},
		"garbage in events":            {event(te, "<html>", end), bad},
	} {
		for _, stream := range []bool{false, true} {
			for _, mediaType := range []string{
				"text/event-stream", "application/json", "text/plain; charset=utf-8", "application/x-ndjson", "",
			} {
				t.Run(fmt.Sprintf("%s stream=%v %s", name, stream, mediaType), func(t *testing.T) {
					play := reply(200, tt.body)
					if mediaType != "" {
						play = reply(200, tt.body, "Content-Type", mediaType)
					}
					call := aCall()
					var told strings.Builder
					if stream {
						call.OnDelta = func(text string) { told.WriteString(text) }
					}
					got, err := fakeClient(t, once(), play).Complete(t.Context(), call)
					if tt.code != "" {
						f := council.AsFailure(err)
						if f == nil || f.Code != tt.code && (!stream || f.Code != truncated && f.Code != bad) {
							t.Errorf("got %q, %v, want %s", got.Text, f, tt.code)
						}
						return
					}
					want := "te\nxt"
					if tt.body == text {
						want += " [DONE]"
					}
					if err != nil || got.Text != want || stream && told.String() != want {
						t.Fatalf("got %q, told %q, %v", got.Text, told.String(), err)
					}
					if got.Usage.InputTokens == nil && !strings.Contains(name, "without a reason") {
						t.Error("its usage is lost")
					}
				})
			}
		}
	}
}

// The text of a stream is passed on as it arrives, whatever its type says.
func TestUntypedStreamIsLive(t *testing.T) {
	for _, mediaType := range []string{"text/plain", "application/json", ""} {
		race.Bubble(t, func(t *testing.T) {
			var first time.Duration
			start := time.Now()
			call := aCall()
			call.OnDelta = func(string) {
				if first == 0 {
					first = time.Since(start)
				}
			}
			play := slowly(mediaType, time.Second, strings.SplitAfter(chunks("a", "b", "c"), "\n\n")...)
			got, err := fakeClient(t, once(), play).Complete(t.Context(), call)
			if err != nil || got.Text != "abc" || first > 2*time.Second {
				t.Errorf("%q: %q, %v, first after %s", mediaType, got.Text, err, first)
			}
		})
	}
}

// Reading a reply in another frame, and the errors in a reply, takes time in proportion to its length.
func TestFramesAreLinear(t *testing.T) {
	testkit.Slow(t)
	for name, text := range map[string]func(n int) string{
		"events":           func(n int) string { return strings.Repeat("data: {\"choices\":[]}\n", n/20) },
		"lines":            func(n int) string { return strings.Repeat("{\"choices\":[]}\n", n/14) },
		"marks":            func(n int) string { return "data: " + strings.Repeat("[DONE]", n/6) },
		"braces":           func(n int) string { return strings.Repeat("{\n", n/2) },
		"braces in events": func(n int) string { return strings.Repeat("data: {\n", n/8) },
		"colons":           func(n int) string { return strings.Repeat(":", n) },
		"blank lines":      func(n int) string { return "data: {" + strings.Repeat("\n", n) },
	} {
		t.Run(name, func(t *testing.T) {
			growth.Linear(t, func(n int) func() {
				o := once()
				o.MaxReplyBytes = 64 << 20
				c := fakeClient(t, o, reply(200, text(n)))
				return func() { _, _ = c.Complete(t.Context(), aCall()) }
			})
		})
	}
}

// Finish reasons in other words are read as OpenAI's.
func TestFinishReasons(t *testing.T) {
	for want, words := range map[string][]string{
		"length": {
			"length", "LENGTH", "MAX_TOKENS", "max_tokens", "model_length", "max_output_tokens", "MaxTokens", "FINISH_REASON_MAX_TOKENS",
			"model_context_window_exceeded",
		},
		"stop":        {"stop", "STOP", "end_turn", "endturn", "eos", "eos_token", "stop_sequence", "COMPLETE", "FINISH_REASON_STOP"},
		"":            {"", "null", "None", "FINISH_REASON_UNSPECIFIED"},
		"tool_calls":  {"tool_calls"},
		"OTHER":       {"OTHER"},
		"user_cancel": {"user_cancel"},
	} {
		for _, word := range words {
			for _, escaped := range []string{word, strings.Replace(word, "_", `\u005f`, 1)} {
				body := `{"choices":[{"index":0,"message":{"content":"text"},"finish_reason":"` + escaped + `"}]}`
				got, err := fakeClient(t, once(), reply(200, body)).Complete(t.Context(), aCall())
				if err != nil || got.FinishReason != want {
					t.Errorf("%s: %q, %v, want %q", escaped, got.FinishReason, err, want)
				}
				body = "data: " + strings.Replace(body, "message", "delta", 1) + "\n\ndata: [DONE]\n\n"
				if got, _, f := streamed(t.Context(), fakeClient(t, once(), eventStream(body))); f != nil || got.FinishReason != want {
					t.Errorf("%s: %q, %v, want %q", escaped, got.FinishReason, f, want)
				}
			}
		}
	}
	for _, word := range []string{
		"content_filter", "SAFETY", "content_filtered", "RECITATION", "PROHIBITED_CONTENT", "BLOCKLIST", "SPII", "sensitive",
	} {
		body := `{"choices":[{"index":0,"message":{"content":"text"},"finish_reason":"` + word + `"}]}`
		_, err := fakeClient(t, once(), reply(200, body)).Complete(t.Context(), aCall())
		if f := council.AsFailure(err); f == nil || f.Code != council.FailContentFilter {
			t.Errorf("%s: %v", word, err)
		}
	}
	// A word that says that there is no reason yet does not end a stream.
	body := `data: {"choices":[{"index":0,"delta":{"content":"te"},"finish_reason":"null"}]}` + "\n\n"
	if _, _, f := streamed(t.Context(), fakeClient(t, once(), eventStream(body))); f == nil || f.Code != council.FailTruncated {
		t.Errorf("a part is taken for the whole: %v", f)
	}
}

// A model that refuses the role system is asked again, at no cost, with the text before the user's, and never in that role
// after that.
func TestNoSystemRole(t *testing.T) {
	for name, tt := range map[string]struct {
		status int
		body   string
		other  bool // it is another refusal
	}{
		"Google's Gemma": {
			400, `[{"error":{"code":400,"message":"Developer instruction is not enabled for models/gemma-3-27b-it",` +
				`"status":"INVALID_ARGUMENT"}}]`, false,
		},
		"vLLM": {
			400, `{"object":"error","message":"System role not supported","type":"BadRequestError","param":null,"code":400}`, false,
		},
		"vLLM, newer": {
			400, `{"error":{"message":"System role not supported System role not supported","type":"BadRequestError","code":400}}`, false,
		},
		"OpenAI's o1": {
			400, `{"error":{"message":"Unsupported value: 'messages[0].role' does not support 'system' with this model.",` +
				`"param":"messages[0].role","code":"unsupported_value"}}`, false,
		},
		"TGI": {
			422, `{"error":"Template error: template render error: System role not supported","error_type":"template_error"}`, false,
		},
		"llama.cpp": {
			500, `{"error":{"code":500,"message":"Jinja Exception: System role not supported","type":"server_error"}}`, false,
		},
		"Mistral's old": {
			400, `{"object":"error","message":"Conversation roles must alternate user/assistant/user/assistant/...",` +
				`"type":"BadRequestError","code":400}`, false,
		},
		"a template": {400, `{"error":{"message":"Only user and assistant roles are supported!"}}`, false},
		"Bedrock": {
			400, `{"message":"This model doesn't support system messages. Try again without a system message."}`, false,
		},
		"a check": {
			422, `{"detail":[{"loc":["body","messages",0,"role"],"msg":"Input should be 'user' or 'assistant'"}]}`, false,
		},
		"another check": {400, `{"error":{"message":"Invalid role: system"}}`, false},
		"prompts":       {400, `{"error":{"message":"System prompts are not supported by this model"}}`, false},
		"inside 200":    {200, `{"error":{"code":400,"message":"System role not supported"}}`, false},
		"OpenRouter's": {
			400, `{"error":{"message":"Provider returned error","code":400,` +
				`"metadata":{"raw":"{\"error\":{\"message\":\"Developer instruction is not enabled for models/x\"}}"}}}`, false,
		},
		"another fault":       {400, `{"error":{"message":"the prompt is too long"}}`, true},
		"an operating system": {400, `{"error":{"message":"unsupported operating system"}}`, true},
		"a broken server":     {500, `{"error":{"message":"the system is down"}}`, true},
		"a limit":             {429, `{"error":{"message":"System role not supported"}}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			race.Bubble(t, func(t *testing.T) {
				var sent []string
				c := fakeClient(t, once(), func(r *http.Request) (*http.Response, error) {
					b, err := io.ReadAll(r.Body)
					if err != nil {
						return nil, err
					}
					var body struct{ Messages []council.Message }
					if err := json.Unmarshal(b, &body); err != nil {
						return nil, err
					}
					var roles []string
					for _, m := range body.Messages {
						roles = append(roles, m.Role+"="+m.Content)
					}
					sent = append(sent, strings.Join(roles, " "))
					if body.Messages[0].Role == "system" {
						return reply(tt.status, tt.body)(r)
					}
					return good()(r)
				})
				call := aCall()
				call.Messages = []council.Message{
					{Role: "system", Content: "S"},
					{Role: "user", Content: "U"},
					{Role: "assistant", Content: "A"},
					{Role: "user", Content: "V"},
				}
				for range 2 {
					_, err := c.Complete(t.Context(), call)
					if (err != nil) != tt.other {
						t.Error(err)
					}
				}
				const with, without = "system=S user=U assistant=A user=V", "user=S\n\nU assistant=A user=V"
				want := []string{with, without, without}
				if tt.other {
					want = []string{with, with}
				}
				if diff := cmp.Diff(want, sent); diff != "" {
					t.Error(diff)
				}
				if call.Messages[1].Content != "U" {
					t.Error("the caller's messages have changed")
				}
			})
		})
	}
}

// A model may refuse several things one after the other, and a call that holds no message of the user keeps its text.
func TestNoSystemRoleAndMore(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		s := &sequence{plays: []roundTripper{
			reply(400, `{"error":{"message":"System role not supported"}}`), reply(400, `{"error":{"param":"temperature"}}`), good(),
		}}
		call := aCall()
		call.Messages, call.Temperature = []council.Message{{Role: "system", Content: "S"}}, new(.5)
		got, err := fakeClient(t, fakeOptions(), s.RoundTrip).Complete(t.Context(), call)
		if diff := cmp.Diff([]string{"temperature"}, got.LeftOut); err != nil || got.Attempts != 3 || diff != "" {
			t.Errorf("%v after %d requests\n%s", err, got.Attempts, diff)
		}
		x := &exchange{call: &call, without: optSystem}
		if diff := cmp.Diff([]council.Message{{Role: "user", Content: "S"}}, x.messages()); diff != "" {
			t.Error(diff)
		}
	})
}

// FuzzComplaint reads errors of any form.
func FuzzComplaint(f *testing.F) {
	for _, tt := range errorCases {
		f.Add([]byte(tt.body), tt.status)
	}
	f.Fuzz(func(t *testing.T, body []byte, status int) {
		defer inTime(t, len(body))()
		c := readComplaint(body)
		if len(c.message) > 2*len(body) || c.status != 0 && (c.status < 400 || c.status > 599) || c.code(status) == "" {
			t.Errorf("%+v", c)
		}
		if c.wait != nil && !(*c.wait >= 0) {
			t.Errorf("wait %v", *c.wait)
		}
	})
}

// Reading an error takes time in proportion to its length, up to the limit of an error's body.
func TestComplaintsAreBounded(t *testing.T) {
	const n = maxErrorBytes
	for name, body := range map[string]string{
		"words":    `{"error":{"message":"` + strings.Repeat("please try again in limit ", n/26-2) + `"}}`,
		"members":  "{" + strings.Repeat(`"a_b":1,`, n/8-2) + `"a":1}`,
		"quotas":   `{"error":{"violations":[` + strings.Repeat(`{"quotaId":"x"},`, n/16-4) + `{}]}}`,
		"names":    `{"errors":[` + strings.Repeat(`{"code":"x"},`, n/13-4) + `{}]}`,
		"brackets": strings.Repeat("[", n/2) + strings.Repeat("]", n/2),
	} {
		growth.Bounded(t, n, func() {
			c := readComplaint([]byte(body))
			if got := c.code(429); got == "" {
				t.Errorf("%s: no code", name)
			}
		})
	}
}
