// A real OpenID provider (oidc-provider) on loopback. Its people come from the test: PUT /test/people.
// PUT /test/tamper {"id_token": {...}, "userinfo": {...}} changes claims of the next answers: a provider gone wrong.
// "signed_by": a JWK that signs ID tokens under the provider's own key id, or "nobody".
import http from 'node:http';
import { importJWK, decodeJwt, SignJWT, UnsecuredJWT } from 'jose';
import Provider, { interactionPolicy } from 'oidc-provider';

const setup = JSON.parse(process.env.PROVIDER_SETUP);
const issuer = `http://127.0.0.1:${setup.port}`;
let people = {};
let tamper = {};

const claimsOf = (person) => Object.fromEntries(Object.entries(person).filter(([name]) => name !== 'password'));
const prompts = interactionPolicy.base();
prompts.remove('consent');

const provider = new Provider(issuer, {
  clients: setup.clients,
  jwks: setup.jwks,
  cookies: { keys: ['only for tests'] },
  claims: { openid: ['sub', 'sid', 'acr', 'amr'], profile: ['preferred_username', 'name', 'groups'], email: ['email', 'email_verified'] },
  acrValues: ['one', 'two'],
  conformIdTokenClaims: false,
  features: {
    devInteractions: { enabled: false },
    backchannelLogout: { enabled: true },
    rpInitiatedLogout: { enabled: true },
  },
  interactions: { policy: prompts, url: (ctx, interaction) => `/interaction/${interaction.uid}` },
  findAccount: (ctx, sub) => people[sub] && { accountId: sub, claims: () => ({ sub, ...claimsOf(people[sub]) }) },
  loadExistingGrant: async (ctx) => {
    const grant = new ctx.oidc.provider.Grant({ clientId: ctx.oidc.client.clientId, accountId: ctx.oidc.session.accountId });
    grant.addOIDCScope('openid profile email');
    await grant.save();
    return grant;
  },
  ttl: { Session: 3600, Interaction: 600, Grant: 3600, AccessToken: 600, IdToken: 600 },
});

const signed = async (claims, jwk) => jwk === 'nobody'
  ? new UnsecuredJWT(claims).encode()
  : new SignJWT(claims).setProtectedHeader({ alg: jwk.alg, kid: setup.jwks.keys[0].kid }).sign(await importJWK(jwk, jwk.alg));

provider.use(async (ctx, next) => {
  await next();
  if (ctx.path === '/token' && ctx.body?.id_token && (tamper.id_token || tamper.signed_by)) {
    const claims = { ...decodeJwt(ctx.body.id_token), ...tamper.id_token };
    for (const name of Object.keys(claims)) if (claims[name] === null) delete claims[name];
    ctx.body = { ...ctx.body, id_token: await signed(claims, tamper.signed_by ?? setup.jwks.keys[0]) };
  }
  if (ctx.path === '/token' && tamper.without_id_token) { const { id_token, ...rest } = ctx.body; ctx.body = rest; }
  if (ctx.path === '/me' && tamper.userinfo) ctx.body = { ...ctx.body, ...tamper.userinfo };
});

async function body(request) {
  const parts = [];
  for await (const part of request) parts.push(part);
  return Buffer.concat(parts).toString();
}

async function signIn(request, response) {
  if (request.method === 'GET') {
    response.setHeader('Content-Type', 'text/html');
    response.end('<form method="post"><input name="login"><input name="password" type="password"><button>Go on</button></form>');
    return;
  }
  const form = new URLSearchParams(await body(request));
  const person = people[form.get('login')];
  if (!person || person.password !== form.get('password')) {
    response.writeHead(403).end('unknown person or wrong password');
    return;
  }
  const login = { accountId: form.get('login'), acr: person.acr, amr: person.amr };
  await provider.interactionFinished(request, response, { login });
}

const answer = provider.callback();
http.createServer(async (request, response) => {
  try {
    if (request.url.startsWith('/interaction/')) await signIn(request, response);
    else if (request.url === '/test/people') { people = JSON.parse(await body(request)); response.end(); }
    else if (request.url === '/test/tamper') { tamper = JSON.parse(await body(request)); response.end(); }
    else answer(request, response);
  } catch (error) {
    console.error(error);
    response.writeHead(500).end(String(error));
  }
}).listen(setup.port, '127.0.0.1', () => console.log('listening'));
provider.on('server_error', (ctx, error) => console.error(error));
provider.on('backchannel.error', (ctx, error) => console.error(error));
