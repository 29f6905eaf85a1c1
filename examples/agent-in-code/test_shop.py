"""The agents without a model: the script says what the model does, the function is the real one."""

from shop import Offer, Shop, clerk

from holodeck.testing import ScriptedModel, call, say


def test_the_clerk_answers_with_an_offer() -> None:
    model = ScriptedModel(call("price", product="tea"), say('{"product": "tea", "euros": 3.5}'))
    tested = clerk.with_(model=model, tools=clerk.tools[:1])
    assert tested.run_sync("How much is tea?", deps=Shop(prices={"tea": 3.5})).output == Offer("tea", 3.5)
    assert "3.5" in str(model.requests[1].items[-1])
