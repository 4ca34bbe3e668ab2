package simllm

import (
	"encoding/json"
	"strings"
)

// structured returns a JSON value of the form that a request asks for. ok is false if the request asks for no form, or
// if the model does not honour a response_format.
func (m *model) structured(q *request) (text string, ok bool) {
	format, _ := q.body.ResponseFormat.(map[string]any)
	if format == nil || format["type"] == "text" || m.ResponseFormat != FormatHonoured {
		return "", false
	}
	wrapped, _ := format["json_schema"].(map[string]any)
	schema, _ := wrapped["schema"].(map[string]any)
	data, err := json.Marshal(instance(schema, schema, 0))
	return string(data), err == nil
}

// maxInstance is how deep the values of an instance may be nested. It limits a schema that refers to itself.
const maxInstance = 16

// instance returns a value that fits a schema with the usual keywords. Equal schemas give equal values.
func instance(schema, root map[string]any, depth int) any {
	if depth > maxInstance {
		return nil
	}
	if value, ok := schema["const"]; ok {
		return value
	}
	if values, _ := schema["enum"].([]any); len(values) > 0 {
		return values[0]
	}
	if ref, ok := schema["$ref"].(string); ok {
		at := root
		for _, step := range strings.Split(strings.TrimPrefix(ref, "#"), "/")[1:] {
			at, _ = at[step].(map[string]any)
		}
		return instance(at, root, depth+1)
	}
	if first, ok := firstChoice(schema); ok {
		return instance(first, root, depth+1)
	}
	kind, _ := schema["type"].(string)
	if kinds, _ := schema["type"].([]any); len(kinds) > 0 {
		kind, _ = kinds[0].(string)
	}
	switch kind {
	case "string":
		return "Simulated text"
	case "number", "integer":
		if least, ok := schema["minimum"]; ok {
			return least
		}
		return 1
	case "boolean":
		return true
	case "null":
		return nil
	case "array":
		items, _ := schema["items"].(map[string]any)
		return []any{instance(items, root, depth+1)}
	default:
		members := map[string]any{}
		properties, _ := schema["properties"].(map[string]any)
		for name, property := range properties {
			inside, _ := property.(map[string]any)
			members[name] = instance(inside, root, depth+1)
		}
		return members
	}
}

// firstChoice returns the first of the schemas that anyOf, oneOf or allOf combines.
func firstChoice(schema map[string]any) (first map[string]any, ok bool) {
	for _, keyword := range []string{"anyOf", "oneOf", "allOf"} {
		if choices, _ := schema[keyword].([]any); len(choices) > 0 {
			first, _ = choices[0].(map[string]any)
			return first, true
		}
	}
	return nil, false
}
