"""A scripted model on loopback, as coding agents ask for one: Anthropic's Messages, OpenAI's Responses and Chat
Completions, Gemini's generateContent. Not a test by itself.

The script is a list of calls, each (tool, arguments). How many answers of tools a request brings along says
which call is next; after the last one the model is done. A request that doesn't offer the script's first tool
(for a title, a summary, a route) gets an empty object. A script of texts is for an agent whose model has no
tools: said one a request.
"""
import http.server
import json
import threading

DONE, NOTHING = "done", "{}"


def text_of(content):
    """Of a tool's answer: a string, or parts of which some are text."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        return text_of(content.get("content") or content.get("output") or "")
    return "".join(p.get("text", "") for p in content or [])


class Messages:
    """POST /v1/messages"""

    def answers(self, ask):
        return [text_of(p["content"]) for m in ask["messages"] if isinstance(m["content"], list)
                for p in m["content"] if p["type"] == "tool_result"]

    def tools(self, ask):
        return {t.get("name") for t in ask.get("tools") or []}

    def reply(self, ask, say, number):
        block, delta = {"type": "text", "text": say}, {"type": "text_delta", "text": say}
        empty, why = {"type": "text", "text": ""}, "end_turn"
        if not isinstance(say, str):
            empty = {"type": "tool_use", "id": f"toolu_{number}", "name": say[0], "input": {}}
            block, why = {**empty, "input": say[1]}, "tool_use"
            delta = {"type": "input_json_delta", "partial_json": json.dumps(say[1])}
        head = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": ask.get("model", "m"),
                "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 9, "output_tokens": 9}}
        if not ask.get("stream"):
            return json.dumps({**head, "content": [block], "stop_reason": why})
        events = [{"type": "message_start", "message": {**head, "content": []}},
                  {"type": "content_block_start", "index": 0, "content_block": empty},
                  {"type": "content_block_delta", "index": 0, "delta": delta},
                  {"type": "content_block_stop", "index": 0},
                  {"type": "message_delta", "delta": {"stop_reason": why, "stop_sequence": None},
                   "usage": {"output_tokens": 9}},
                  {"type": "message_stop"}]
        return "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events)


class Responses:
    """POST /v1/responses"""

    def answers(self, ask):
        return [text_of(i["output"]) for i in ask["input"] if isinstance(i, dict)
                and i.get("type") in ("function_call_output", "custom_tool_call_output")]

    def tools(self, ask):
        return {t.get("name") for t in ask.get("tools") or []}

    def reply(self, ask, say, number):
        item = {"type": "message", "role": "assistant", "id": f"msg_{number}",
                "content": [{"type": "output_text", "text": say}]}
        if not isinstance(say, str) and isinstance(say[1], str):  # a tool of free form
            item = {"type": "custom_tool_call", "call_id": f"call_{number}", "name": say[0], "input": say[1]}
        elif not isinstance(say, str):
            item = {"type": "function_call", "call_id": f"call_{number}", "name": say[0],
                    "arguments": json.dumps(say[1])}
        usage = {"input_tokens": 9, "input_tokens_details": None, "output_tokens": 9,
                 "output_tokens_details": None, "total_tokens": 18}
        events = [{"type": "response.created", "response": {"id": f"resp_{number}"}},
                  {"type": "response.output_item.done", "output_index": 0, "item": item},
                  {"type": "response.completed", "response": {"id": f"resp_{number}", "usage": usage,
                                                              "output": [item]}}]
        return "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events)


class Completions:
    """POST /v1/chat/completions"""

    def answers(self, ask):
        return [text_of(m["content"]) for m in ask["messages"] if m["role"] == "tool"]

    def tools(self, ask):
        return {t["function"]["name"] for t in ask.get("tools") or []}

    def reply(self, ask, say, number):
        said, why = {"role": "assistant", "content": say}, "stop"
        if not isinstance(say, str):
            said = {"role": "assistant", "content": None, "tool_calls": [
                {"index": 0, "id": f"call_{number}", "type": "function",
                 "function": {"name": say[0], "arguments": json.dumps(say[1])}}]}
            why = "tool_calls"
        head = {"id": f"chat_{number}", "created": 1, "model": ask.get("model", "m")}
        usage = {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18}
        if not ask.get("stream"):
            choice = {"index": 0, "message": said, "finish_reason": why}
            return json.dumps({**head, "object": "chat.completion", "choices": [choice], "usage": usage})
        head["object"] = "chat.completion.chunk"
        events = [{**head, "choices": [{"index": 0, "delta": said, "finish_reason": None}]},
                  {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": why}], "usage": usage}]
        return "".join(f"data: {json.dumps(e)}\n\n" for e in events) + "data: [DONE]\n\n"


class Generate:
    """POST /v1beta/models/M:generateContent and :streamGenerateContent"""

    def answers(self, ask):
        told = [p["functionResponse"]["response"] for c in ask["contents"] for p in c["parts"]
                if "functionResponse" in p]
        return [r.get("output", "") for r in told]

    def tools(self, ask):
        return {f["name"] for t in ask.get("tools") or [] for f in t.get("functionDeclarations", [])}

    def reply(self, ask, say, number):
        part = {"text": say} if isinstance(say, str) else {"functionCall": {"name": say[0], "args": say[1]}}
        said = json.dumps({"candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP",
                                           "index": 0}]})
        return f"data: {said}\n\n" if ask.get("stream") else said


SPOKEN = {"/v1/messages": Messages(), "/v1/responses": Responses(), "/v1/chat/completions": Completions(),
          "enerateContent": Generate()}


class Model:
    """Serves until close(); `answers` is what the tools have answered so far."""

    def __init__(self, calls):
        self.calls, self.answers, self.others = calls, [], []
        model = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                model.serve(self)

            def do_GET(self):
                model.others.append("GET " + self.path)
                self.send_error(404)

            do_HEAD = do_GET

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def serve(self, h):
        ask = json.loads(h.rfile.read(int(h.headers["content-length"])) or b"{}")
        path = h.path.split("?")[0]
        spoken = next((s for end, s in SPOKEN.items() if path.endswith(end)), None)
        if not spoken:
            self.others.append("POST " + h.path)
            h.send_error(404)
            return
        if isinstance(spoken, Generate):
            ask["stream"] = "stream" in path
        say = NOTHING
        if isinstance(self.calls[0], str):
            say = self.calls.pop(0) if len(self.calls) > 1 else self.calls[0]
        elif self.calls[0][0] in spoken.tools(ask):
            told = spoken.answers(ask)
            self.answers[len(self.answers):] = told[len(self.answers):]
            say = self.calls[len(told)] if len(told) < len(self.calls) else DONE
        said = spoken.reply(ask, say, len(self.answers)).encode()
        h.send_response(200)
        h.send_header("content-type", "text/event-stream" if ask.get("stream") else "application/json")
        h.end_headers()
        h.wfile.write(said)

    def close(self):
        self.server.shutdown()
