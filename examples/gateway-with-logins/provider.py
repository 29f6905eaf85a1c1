"""An identity provider for this example, which lets Anna in."""

import asyncio

from holodeck.testing import IdentityProvider


async def main() -> None:
    async with IdentityProvider(client_id="holodeck", port=8090) as provider:
        provider.person = {"sub": "anna", "name": "Anna Example", "groups": ["research-team"]}
        print(f"serving {provider.url}", flush=True)
        await asyncio.Event().wait()


asyncio.run(main())
