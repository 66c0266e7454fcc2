import rdchat.inference.blas
import sys,time; sys.path.insert(0,"/tmp/lead/demo")
from common import *
import mlx.optimizers as optim
from mlx.utils import tree_flatten
from transformers import AutoTokenizer
folder=Path("~/.cache/rdchat/models/smollm2-135m-instruct").expanduser()
tok=AutoTokenizer.from_pretrained(folder)
from rdchat.inference.loading import load_model
m=load_model(str(folder),"float32")
E=np.array(m.network.model.embed_tokens(mx.arange(49152)).astype(mx.float32))
SLOTS=16
words=sorted({i for c in COLORS for s in SHAPES for r in ("left of","above") for i in tok.encode(f"A {c} {s} {r} a {c} {s}.")}|{tok.encode("\n")[0]})
index={w:i for i,w in enumerate(words)}; nl=tok.encode("\n")[0]
table=mx.array(E[words]); norm=float(np.linalg.norm(E[words],axis=1).mean()); print(len(words),norm)
def target(s):
    ids=tok.encode(s)
    if " above" in s: ids=ids[:4]+[nl]+ids[4:]
    return [index[i] for i in ids+[nl]*(SLOTS-len(ids))]
mx.random.seed(0); tower=Tower(); tower.proj.weight=tower.proj.weight*float(np.std(E[words]))
rng=np.random.default_rng(1)
steps=int(sys.argv[1]); lr=optim.join_schedules([optim.linear_schedule(0,7e-4,200),optim.cosine_decay(7e-4,steps)],[200]); opt=optim.AdamW(lr,weight_decay=0.01)
def loss(t,x,y):
    rows=t(x); logits=rows@table.T/ (norm**2) * 20
    ce=nn.losses.cross_entropy(logits,y,reduction="mean"); mse=mx.mean((rows-table[y])**2)/float(np.mean(E[words]**2))
    return ce+0.2*mse
step=nn.value_and_grad(tower,loss); t0=time.time(); seen=[]
import functools
state=[tower.state,opt.state]
@functools.partial(mx.compile,inputs=state,outputs=state)
def train(x,y):
    l,g=step(tower,x,y); opt.update(tower,g); return l
for n in range(steps):
    batch=[draw(rng) for _ in range(64)]
    x=pixels(np.stack([b[0] for b in batch])); y=mx.array([target(b[1]) for b in batch])
    l=train(x,y); mx.eval(state,l); seen.append(l.item())
    if n%100==99:
        test=np.random.default_rng(10**6); tb=[draw(test) for _ in range(200)]
        rows=tower(pixels(np.stack([b[0] for b in tb]))); got=np.array((rows@table.T).argmax(-1)); want=np.array([target(b[1]) for b in tb])
        print(n+1,round(np.mean(seen[-100:]),4),"sentences",(got==want).all(1).mean(),(got==want).mean(0)[:9].round(2),round(time.time()-t0),flush=True)
        mx.savez("/tmp/lead/demo/tower1.npz",**dict(tree_flatten(tower.parameters())))
