import rdchat.inference.blas
import sys,time; sys.path.insert(0,"/tmp/lead/demo")
from common import *
import mlx.optimizers as optim
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm import utils
from transformers import AutoTokenizer
folder=Path("~/.cache/rdchat/models/smollm2-135m-instruct").expanduser()
tok=AutoTokenizer.from_pretrained(folder)
network,_=utils.load_model(folder); network.freeze()
# 4-bit layers as float32
def dequant(m):
    for name,child in list(m.named_modules()):
        pass
from mlx_lm.utils import dequantize_model
network=dequantize_model(network); network.set_dtype(mx.float32); network.freeze(); mx.eval(network.parameters())
IMAGE,FAKE,GLOBAL=16,15,14
ASKS=["Describe the picture in one sentence.","What do you see?","What is in this picture?","What is this?","Describe it.","Tell me what the picture shows.","What is drawn here?",""]
def ids_of(ask,caption):
    before=tok.encode("<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n<|im_start|>user\n")
    after=tok.encode(f"{ask}<|im_end|>\n<|im_start|>assistant\n")
    answer=tok.encode(caption)+[2]
    return before+[FAKE,GLOBAL],[FAKE]+after,answer
mx.random.seed(0); tower=Tower()
src=sys.argv[2]; tower.update(tree_unflatten(list(mx.load(src).items())))
rng=np.random.default_rng(int(sys.argv[3]) if len(sys.argv)>3 else 7)
steps=int(sys.argv[1]); B=4
opt=optim.AdamW(optim.cosine_decay(3e-4,steps),weight_decay=0.0)
embed=network.model.embed_tokens
def loss(t,x,before,after,target,mask):
    rows=t(x)
    emb=mx.concatenate([embed(before),rows,embed(after)],axis=1)
    logits=network(before,input_embeddings=emb)
    logits=logits[:,-target.shape[1]-1:-1]
    ce=nn.losses.cross_entropy(logits,target)*mask
    return ce.sum()/mask.sum()
grad=nn.value_and_grad(tower,loss)
def batch(rng,B,ask=None):
    draws=[draw(rng) for _ in range(B)]
    ask=ask if ask is not None else ASKS[rng.integers(len(ASKS))]
    parts=[ids_of(ask,c) for _,c in draws]
    longest=max(len(p[2]) for p in parts)
    before=mx.array([p[0] for p in parts])
    answers=[p[2]+[2]*(longest-len(p[2])) for p in parts]
    after=mx.array([p[1]+a for p,a in zip(parts,answers)])
    mask=mx.array([[1.0]*len(p[2])+[0.0]*(longest-len(p[2])) for p in parts])
    return draws,pixels(np.stack([d[0] for d in draws])),before,after,mx.array(answers),mask
def evaluate(n=24):
    r=np.random.default_rng(10**6+1); hit=0
    for k in range(n//4):
        draws,x,before,after,answers,mask=batch(r,4,ASKS[k%len(ASKS)])
        emb=mx.concatenate([embed(before),tower(x),embed(after)],axis=1)
        got=np.array(network(before,input_embeddings=emb)[:,-answers.shape[1]-1:-1].argmax(-1))
        ok=((got==np.array(answers))|(np.array(mask)==0)).all(1); hit+=ok.sum()
    return hit/n
t0=time.time(); seen=[]
print("start",evaluate(),flush=True)
for n in range(steps):
    _,x,before,after,answers,mask=batch(rng,B)
    l,g=grad(tower,x,before,after,answers,mask); g,_=optim.clip_grad_norm(g,1.0); opt.update(tower,g); mx.eval(tower.parameters(),opt.state,l); seen.append(l.item())
    if n%20==19:
        print(n+1,round(float(np.mean(seen[-20:])),4),round(time.time()-t0),flush=True)
    if n%100==99:
        print("held out",evaluate(),flush=True); mx.savez("/tmp/lead/demo/tower2.npz",**dict(tree_flatten(tower.parameters())))
mx.savez("/tmp/lead/demo/tower2.npz",**dict(tree_flatten(tower.parameters())))
print("end",evaluate(100))
