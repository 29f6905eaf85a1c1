# curl.sh
URL=${HOLODECK_URL:-http://127.0.0.1:8080/v1}
KEY=${HOLODECK_KEY:-none}

ask() { curl -sN "$URL/$1" -H "Authorization: Bearer $KEY" -H 'Content-Type: application/json' -d "$2"; }

# The gateway calls its own tool and answers.
ask responses '{"model": "demo", "input": "echo \"hello\""}' | grep -o '"text":"[^"]*"' | tail -1

# The same as a stream of events.
ask responses '{"model": "demo", "input": "echo \"hello\"", "stream": true}' | grep -c '^event: response.output_text.delta'

# The older API.
ask chat/completions '{"model": "demo", "messages": [{"role": "user", "content": "echo \"hello\""}]}' |
  grep -o '"content":"[^"]*"'
