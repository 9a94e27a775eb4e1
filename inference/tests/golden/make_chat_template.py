"""Makes `chat_template.json`: what Jinja in Python makes of templates, set up as transformers does.

usage: make_chat_template.py SMOLLM2_GGUF     needs gguf, jinja2 and numpy from PyPI.

The templates besides SmolLM2's were written for this test, in the shapes of those in use.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

import gguf
from jinja2 import TemplateError, ext, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = 1_772_323_200  # 2026-03-01 00:00 UTC

TEMPLATES = {
    "alternation": """{{ bos_token }}{% if messages[0]['role'] == 'system' %}
    {%- set first = messages[0]['content'] | trim + '\\n\\n' %}
    {%- set rest = messages[1:] %}
{%- else %}
    {%- set first = '' %}
    {%- set rest = messages %}
{%- endif %}
{%- for message in rest %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}
    {%- endif %}
    {%- set role = 'model' if message['role'] == 'assistant' else message['role'] %}
    {{- '<start_of_turn>' + role + '\\n' + (first if loop.first else '') }}
    {%- if message['content'] is string %}
        {{- message['content'] | trim }}
    {%- elif message['content'] is iterable %}
        {%- for item in message['content'] %}{{ item['text'] }}{% endfor %}
    {%- else %}
        {{- raise_exception("Invalid content type") }}
    {%- endif %}
    {{- '<end_of_turn>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<start_of_turn>model\\n' }}
{%- endif %}
""",
    "tools": """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'You are a helpful assistant.' }}
    {%- endif %}
    {{- "\\n\\n# Tools\\n\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- elif messages[0]['role'] == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(multi_step=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step and message.role == "user" and not (message.content.startswith('<tool_response>')) %}
        {%- set ns.multi_step = false %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set content = message.content.split('</think>')[-1].lstrip('\\n') if loop.index0 < ns.last else message.content %}
        {{- '<|im_start|>' + message.role }}
        {%- if content %}{{ '\\n' + content }}{% endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '\\n<tool_call>\\n{"name": "' }}
            {{- tool_call.name }}
            {{- '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' }}
        {{- message.content }}
        {{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
""",
    "dated": """{{- bos_token }}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{%- macro header(role) -%}<|start_header_id|>{{ role }}<|end_header_id|>{{ "\\n\\n" }}{%- endmacro -%}
{{- header("system") }}Today Date: {{ date_string }}
{% if tools is not none %}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{% endif %}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- header(message['role']) + message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("This model only supports single tool-calls at once!") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- header("assistant") }}
        {{- tool_call.name + "(" }}
        {%- for name, value in tool_call.arguments | items %}
            {{- name + '="' ~ value ~ '"' }}
            {%- if not loop.last %}{{ ", " }}{% endif %}
        {%- endfor %}
        {{- ")<|eom_id|>" }}
    {%- else %}
        {{- header("ipython") }}{{ message.content | tojson }}<|eot_id|>
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ header("assistant") }}{% endif %}
""",
    "loops": """{% for message in messages %}
{% if message.role == 'system' %}{% continue %}{% endif %}
{% if loop.index > 3 %}{% break %}{% endif %}
  {% generation %}{{ loop.index }}/{{ loop.length }} {{ message.role | upper }}{% endgeneration %}

  {{ message.content | replace('a', 'o') }}
{% if loop.previtem is defined %}after {{ loop.previtem.role }}{% endif %}
{% if loop.nextitem is defined %}before {{ loop.nextitem.role }}{% endif %}
{# a comment #}
{% endfor %}
{% for message in [] %}{% else %}
nothing
{% endfor %}
{{ eos_token -}}

""",
    "python": """{% set words = messages[0].content.strip().split(' ') %}
{{ words }} {{ words | length }} {{ words[0].title() }} {{ words[-1].upper() }} {{ words[:2] | join('+') }}
{{ true }} {{ none }} {{ 1.0 }} {{ 3 // 2 }} {{ 7 / 2 }} {{ [1, 'a', none, true, 2.5] }} {{ {'k': ['v', "it's"]} }}
{{ missing }}|{{ missing is defined }}|{{ messages[0].missing }}|{{ 'x' in missing }}|{{ missing | default('d') }}
{{ messages[0].content is string }} {{ messages[0].content is sequence }} {{ messages[0] is mapping }} {{ messages is iterable }}
{{ {'b': 1, 'a': [true, none, 1.5, 1e20, 1e-7, 'ü<&>"\\n\\x07']} | tojson }}
{{ {'b': 1, 'a': {}} | tojson(indent=2) }} {{ [] | tojson(indent=2) }} {{ {'b': 'ü', 'a': 1} | tojson(ensure_ascii=true, sort_keys=true, separators=(',', ':')) }}
{{ messages[0].items() | list | length }} {{ messages[0].get('role') }} {{ messages[0].get('none', 'else') }} {{ messages[0].keys() | list }}
{{ 'a,b,,c'.split(',') }} {{ ' x '.rstrip() ~ '.' }} {{ 'xxabxx'.strip('x') }} {{ 'abc'.replace('b', '') }} {{ 'abc'.find('c') }} {{ 'abcabc'.count('b') }}
{{ 'abc'[::-1] }} {{ 'abc'[-1] }} {{ range(3) | list }} {{ (1, 2) | length }} {{ 'a' * 3 }} {{ '%s-%s' | format('a', 1) }}
{{ messages | selectattr('role', 'equalto', 'user') | list | length }} {{ messages | map(attribute='role') | join(',') }} {{ messages | rejectattr('role', 'equalto', 'user') | map(attribute='role') | list }}
{{ 'abc' if false }}|{{ 'a' if missing else 'b' }}|{{ 1 if messages[0].content else 2 }}|{{ not missing }}|{{ messages[5] is defined }}
{% set x = 1 %}{% for i in [1, 2] %}{% set x = x + i %}{% endfor %}{{ x }} {{ 'Ab' | lower }} {{ 'ab' | capitalize }} {{ '  a ' | trim }}. {{ [3, 1] | sort }} {{ [1, 2] | first }} {{ [1, 2] | last }}
{{ True and not False }} {{ None is none }} {{ messages[0]['content'].endswith('.') }} {{ 'a' ~ 1 ~ 'b' }} {{ 5 % 3 }} {{ 2 ** 3 }} {{ [1] + [2] }}
""",
}

CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {
            "id": "call_1",
            "type": "function",
            "function": {
                "name": "weather",
                "arguments": {"zone": "Zürich <b>", "days": 3, "metric": 1.5},
            },
        }
    ],
}
USER = {"role": "user", "content": "  Hi there, a b. "}
SYSTEM = {"role": "system", "content": "Be brief.\n"}
ASSISTANT = {"role": "assistant", "content": '<think>\nhm\n</think>\n\nHello "you" 👋'}
TOOL = {
    "role": "tool",
    "content": '{"sunny": true, "text": "it\'s <fine>"}',
    "tool_call_id": "call_1",
}
CONVERSATIONS = [
    [USER],
    [SYSTEM, USER],
    [SYSTEM, USER, ASSISTANT, USER],
    [USER, USER],
    [ASSISTANT, USER],
    [SYSTEM],
    [USER, CALL, TOOL],
    [USER, CALL, TOOL, TOOL, ASSISTANT, USER],
    [USER, {**CALL, "tool_calls": CALL["tool_calls"] * 2}, TOOL],
    [SYSTEM, USER, ASSISTANT, USER, ASSISTANT, USER],
]  # fmt: skip
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": 'What the weather is like, e.g. "sunny" <&>.',
            "parameters": {
                "type": "object",
                "properties": {
                    "zone": {"type": "string"},
                    "days": {"type": "integer", "default": 1},
                },
                "required": ["zone"],
                "additionalProperties": False,
            },
        },
    }
]


class Generation(ext.Extension):
    """Blocks that mark what a model is trained on."""

    tags: ClassVar[set[str]] = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.If(nodes.Const(True), body, [], []).set_lineno(line)


def environment() -> ImmutableSandboxedEnvironment:
    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(
            x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )

    def strftime_now(format: str) -> str:
        return datetime.fromtimestamp(NOW, UTC).strftime(format)

    made = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, ext.loopcontrols]
    )
    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = strftime_now
    return made


def main() -> None:
    fields = gguf.GGUFReader(sys.argv[1]).fields
    templates = {"smollm2": fields["tokenizer.chat_template"].contents(), **TEMPLATES}
    cases = []
    for name, source in templates.items():
        template = environment().from_string(source)
        for messages in CONVERSATIONS:
            for tools, add_generation_prompt in ((None, True), (TOOLS, True), (None, False)):
                variables = {
                    "messages": messages,
                    "tools": tools,
                    "documents": None,
                    "add_generation_prompt": add_generation_prompt,
                    "bos_token": "<s>",
                    "eos_token": "</s>",
                }
                case = {"template": name, "messages": messages, "tools": tools}
                case["add_generation_prompt"] = add_generation_prompt
                try:
                    case["text"] = template.render(**variables)
                except TemplateError as error:
                    # Errors of Jinja itself are of derived types.
                    key = "raised" if type(error) is TemplateError else "broken"
                    case[key] = str(error)
                cases.append(case)
    golden = {"source": "jinja2 3.1.6", "now": NOW, "templates": templates, "cases": cases}
    written = json.dumps(golden, ensure_ascii=False, separators=(",", ":"))
    Path(__file__).with_name("chat_template.json").write_text(written + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
