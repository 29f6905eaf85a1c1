from openai import OpenAI

client = OpenAI(base_url="http://127.0.0.1:8080/v1", api_key="anything")
chunks = list(client.chat.completions.create(model="helper", messages=[{"role": "user", "content": "Hi"}], stream=True))
text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
print(f"{chunks[0].model} answered: {text}")
